package gossip

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what must come; a slow machine is no
// fault.
const patience = 30 * time.Second * raceFactor

// eventually waits until ok says "", or fails with what it said last.
func eventually(t testing.TB, what string, ok func() string) time.Duration {
	t.Helper()
	start := time.Now()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		why := ok()
		if why == "" {
			return time.Since(start)
		}
		if time.Since(start) > patience {
			t.Fatalf("%s: not within %v: %s", what, patience, why)
		}
		<-tick.C
	}
}

// newNode makes a node on loopback, not started; change may alter it.
func newNode(t testing.TB, id string, change func(*Config, *Options)) *Cluster {
	t.Helper()
	cfg := DefaultConfig()
	cfg.Bind = "127.0.0.1:0"
	opt := Options{ID: id, Self: Meta{Name: id, Version: "test"}}
	if os.Getenv("GOSSIP_LOG") != "" {
		opt.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug})).With("at", id)
	}
	if change != nil {
		change(&cfg, &opt)
	}
	c, err := New(cfg, opt)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func startNode(t testing.TB, c *Cluster) *Cluster {
	t.Helper()
	if err := c.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { crash(c) })
	return c
}

// crash ends a node without a word to the others.
func crash(c *Cluster) {
	now, cancel := context.WithCancel(context.Background())
	cancel()
	_ = c.Stop(now)
}

// startNodes starts n nodes that have the first one as seed.
func startNodes(t testing.TB, n int, change func(i int, cfg *Config, opt *Options)) []*Cluster {
	t.Helper()
	var all []*Cluster
	for i := range n {
		c := newNode(t, fmt.Sprintf("n%d", i), func(cfg *Config, opt *Options) {
			if i > 0 {
				cfg.Seeds = []string{all[0].Addr().String()}
			}
			if change != nil {
				change(i, cfg, opt)
			}
		})
		all = append(all, startNode(t, c))
	}
	return all
}

// count is how many members are in one of the states.
func (c *Cluster) alive() int {
	n := 0
	for _, m := range c.Members() {
		if m.State != "dead" && m.State != "left" {
			n++
		}
	}
	return n
}

// complete says who does not see n members alive.
func complete(nodes []*Cluster, n int) func() string {
	return func() string {
		for _, c := range nodes {
			if got := c.alive(); got != n {
				return fmt.Sprintf("%s sees %d alive, want %d", c.opt.ID, got, n)
			}
		}
		return ""
	}
}

func stateOf(c *Cluster, id string) string {
	for _, m := range c.Members() {
		if m.ID == id {
			return string(m.State)
		}
	}
	return "unknown"
}
