package store

import (
	"io"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// trio is three rafts whose logs are three slots of one file.
type trio struct {
	rafts [3]*raft.Raft
	slots [3]*Slot
	trans [3]*raft.InmemTransport
}

func startTrio(t *testing.T, st *Store) *trio {
	t.Helper()
	c := &trio{}
	var members raft.Configuration
	for i := range c.trans {
		var addr raft.ServerAddress
		addr, c.trans[i] = raft.NewInmemTransport(raft.ServerAddress("abc"[i : i+1]))
		members.Servers = append(members.Servers, raft.Server{ID: raft.ServerID(addr), Address: addr})
	}
	for i := range c.trans {
		for j := range c.trans {
			c.trans[i].Connect(members.Servers[j].Address, c.trans[j])
		}
	}
	for i := range c.rafts {
		conf := raft.DefaultConfig()
		conf.LocalID, conf.LogOutput = members.Servers[i].ID, io.Discard
		conf.TrailingLogs = 3
		conf.HeartbeatTimeout, conf.ElectionTimeout, conf.LeaderLeaseTimeout = 200*time.Millisecond, 200*time.Millisecond, 100*time.Millisecond
		snaps := raft.NewInmemSnapshotStore()
		c.slots[i] = open(t, st, key(uint64(i)))
		must(t, raft.BootstrapCluster(conf, c.slots[i], c.slots[i], snaps, c.trans[i], members))
		r, err := raft.NewRaft(conf, &machineOfNothing{}, c.slots[i], c.slots[i], snaps, c.trans[i])
		must(t, err)
		t.Cleanup(func() { must(t, r.Shutdown().Error()) })
		c.rafts[i] = r
	}
	return c
}

// apply has the command committed, whoever leads, and says who did.
func (c *trio) apply(t *testing.T, n int) (leader int) {
	t.Helper()
	for range n {
		eventually(t, "a command is committed", func() bool {
			for i, r := range c.rafts {
				if r.State() == raft.Leader && r.Apply([]byte("x"), patience).Error() == nil {
					leader = i
					return true
				}
			}
			return false
		})
	}
	return leader
}

// cutOff parts node i from the others, both ways; mend undoes it.
func (c *trio) cutOff(i int) (mend func()) {
	for j := range c.trans {
		if j != i {
			c.trans[i].Disconnect(c.trans[j].LocalAddr())
			c.trans[j].Disconnect(c.trans[i].LocalAddr())
		}
	}
	return func() {
		for j := range c.trans {
			if j != i {
				c.trans[i].Connect(c.trans[j].LocalAddr(), c.trans[j])
				c.trans[j].Connect(c.trans[i].LocalAddr(), c.trans[i])
			}
		}
	}
}

// A follower that was away while the leader's log was cut gets a snapshot, its
// old log is removed, and it goes on behind a gap; the file knows that as well.
func TestSnapshotInstall(t *testing.T) {
	p := path(t)
	st := begin(t, Options{Path: p})
	c := startTrio(t, st)
	away := (c.apply(t, 5) + 1) % 3
	mend := c.cutOff(away)
	c.apply(t, 40)
	_, old := c.slots[away].lane.span()
	for i := range c.rafts {
		if i == away {
			continue
		}
		eventually(t, "the other has all", func() bool { return c.rafts[i].AppliedIndex() > old+39 })
		must(t, c.rafts[i].Snapshot().Error())
		if first, _ := c.slots[i].lane.span(); first <= old {
			t.Fatalf("a log begins at %d, the follower's ends at %d: the test is of no use", first, old)
		}
	}
	mend()
	c.apply(t, 2)
	eventually(t, "the follower has all", func() bool {
		_, mine := c.slots[away].lane.span()
		return mine > old+40 && c.rafts[0].LastIndex() == mine && c.rafts[1].LastIndex() == mine && c.rafts[2].LastIndex() == mine
	})
	for _, r := range c.rafts {
		must(t, r.Shutdown().Error())
	}
	first, last := c.slots[away].lane.span()
	if first <= old {
		t.Errorf("the follower's log begins at %d: the old one, to %d, is still there", first, old)
	}
	stop(t, st)
	wantSpan(t, open(t, begin(t, Options{Path: p}), key(uint64(away))), first, last)
}
