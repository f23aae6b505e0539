package gossip

import (
	"context"
	"fmt"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMembershipOfManySizes(t *testing.T) {
	t.Parallel() // it waits, mostly
	for _, n := range []int{3, 8, 32} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			start := time.Now()
			nodes := startNodes(t, n, nil)
			started := time.Since(start)
			took := eventually(t, "membership", complete(nodes, n))
			t.Logf("%d nodes: started in %v, all know all %v later", n, started.Round(time.Millisecond), took.Round(time.Millisecond))
			crash(nodes[n-1])
			took = eventually(t, "crash", complete(nodes[:n-1], n-1))
			t.Logf("%d nodes: crash seen by all after %v", n, took.Round(time.Millisecond))
			for _, c := range nodes[:n-1] {
				if got := stateOf(c, nodes[n-1].opt.ID); got != "dead" {
					t.Errorf("%s: the crashed node is %s, want dead", c.opt.ID, got)
				}
			}
		})
	}
}

func TestLeave(t *testing.T) {
	nodes := startNodes(t, 3, nil)
	eventually(t, "membership", complete(nodes, 3))
	nodes[2].Update(func(m *Meta) { m.Draining = true })
	for _, c := range nodes {
		eventually(t, "drain", func() string {
			if s := stateOf(c, "n2"); s != "draining" {
				return c.opt.ID + ": " + s
			}
			return ""
		})
	}
	if err := nodes[2].Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	for _, c := range nodes[:2] {
		eventually(t, "leave", func() string {
			if s := stateOf(c, "n2"); s != "left" {
				return c.opt.ID + ": " + s
			}
			return ""
		})
	}
}

// TestStopIsSoonOver: whoever stops while a ping of its is not answered leaves
// no goroutine that waits for it.
func TestStopIsSoonOver(t *testing.T) {
	others := goleak.IgnoreCurrent()
	nodes := startNodes(t, 3, nil)
	eventually(t, "membership", complete(nodes, 3))
	crash(nodes[1])
	crash(nodes[2])
	pinged := func() int { return len(nodes[0].net.pings.recent()) }
	at := pinged()
	eventually(t, "a ping into the void", func() string {
		if pinged() == at && at < 8 {
			return "none yet"
		}
		return ""
	})
	crash(nodes[0])
	if err := goleak.Find(others); err != nil {
		t.Error(err)
	}
}
