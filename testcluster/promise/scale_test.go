package promise_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/starling-lb/starling/node"
	"github.com/starling-lb/starling/node/api"
	"github.com/starling-lb/starling/proxy"
)

// crowd is how many sessions these tests have.
func crowd() int {
	if *full || !raced {
		return 1000
	}
	return 300
}

// populate binds sessions, and returns where each lives, agreed on.
func (s *stage) populate(t *testing.T, n, nodes int) (homes []string) {
	t.Helper()
	homes = make([]string, n)
	var all sync.WaitGroup
	for w := range 8 {
		all.Go(func() {
			for i := w; i < n; i += 8 {
				s.at(t, i%nodes, fmt.Sprint("s", i))
			}
		})
	}
	all.Wait()
	for i := range nodes {
		eventually(t, settleTime, func() string {
			if n := metric(t, s.Node(i).AdminURL(), "starling_provisional_bindings"); n > 0 {
				return fmt.Sprintf("%v homes are guessed", n)
			}
			return ""
		})
	}
	for i := range homes {
		homes[i] = s.at(t, i%nodes, fmt.Sprint("s", i))
	}
	return homes
}

// settledAt checks that those who lived at a backend have moved, once, that nobody
// else has, and that every node sends each to the same place.
func (s *stage) settledAt(t *testing.T, was []string, left string, stays func(int) bool, nodes int) (moved int) {
	t.Helper()
	for i := range was {
		name, first := fmt.Sprint("s", i), ""
		v := s.session(t, i%nodes, name)
		for n := range nodes {
			home := s.at(t, n, name)
			if first == "" {
				first = home
			}
			if home != first || home != v.Backend {
				t.Errorf("%s is at %s by node %d, was at %s by another, and is bound as %+v", name, home, n, first, v)
			}
		}
		switch leaves := was[i] == left && !stays(i); {
		case leaves && (v.Backend == left || v.Epoch != 2):
			t.Errorf("%s has not moved once: %+v", name, v)
		case !leaves && (v.Backend != was[i] || v.Epoch != 1):
			t.Errorf("%s was at %s and is %+v", name, was[i], v)
		case leaves:
			moved++
		}
	}
	return moved
}

func nobody(int) bool { return false }

// TestRemovalMovesItsOwn: of 1,000 sessions those of a backend that is removed have
// moved a second later, once, and to the same place as seen from every node; and a
// backend that is added moves none. Of five nodes two keep no replica of the cluster's
// own shard, and lead others.
func TestRemovalMovesItsOwn(t *testing.T) {
	t.Parallel()
	for _, nodes := range []int{3, 5} {
		t.Run(fmt.Sprint(nodes), func(t *testing.T) {
			t.Parallel()
			removal(t, nodes, crowd()/(nodes-2))
		})
	}
}

func removal(t *testing.T, nodes, sessions int) {
	s := newStage(t, nodes, func(cfg *node.Config) {
		if nodes > 3 { // some have no replica, and guess where they are not answered in time; strict ones wait
			sticky(cfg, func(c *proxy.SessionConfig) { c.Consistency = "strict" })
		}
	}, nil)
	was := s.populate(t, sessions, nodes)
	extra := s.backend(t, "b9")
	if err := s.admin(t, 1).Post(t.Context(), map[string]any{"id": extra.ID, "url": extra.URL, "weight": 1}, "pools", pool, "backends"); err != nil {
		t.Fatal(err)
	}
	for i := range nodes {
		eventually(t, settleTime, func() string {
			if n := metric(t, s.Node(i).AdminURL(), "starling_backend_state", `backend="b9"`, `state="active"`); n != 1 {
				return fmt.Sprintf("node %d does not know b9", i)
			}
			return ""
		})
	}
	if moves := s.sum(t, nodes, "starling_moves_total"); moves != 0 {
		t.Errorf("%v moves because of a backend more", moves)
	}
	s.still(t)
	began := time.Now()
	if err := s.admin(t, 0).Delete(t.Context(), "pools", pool, "backends", "b2"); err != nil {
		t.Fatal(err)
	}
	if nodes == 3 {
		s.counted(t, len(was), nodes)
	} else {
		s.moved(t, was, "b2", nodes)
	}
	took := time.Since(began)
	moved := s.settledAt(t, was, "b2", nobody, nodes)
	t.Logf("%d of %d sessions have moved as seen by every node %v after the removal", moved, len(was), took.Round(time.Millisecond))
	if limit := time.Second; *full && took > limit || took > 30*limit {
		t.Errorf("it took %v", took)
	}
}

// counted waits until every node, of which each has replicas of all shards, knows all
// sessions to live at backends that are left.
func (s *stage) counted(t *testing.T, sessions, nodes int) {
	t.Helper()
	for i := range nodes {
		asked := s.admin(t, i)
		eventually(t, settleTime, func() string {
			all := 0
			for _, id := range []string{"b1", "b3", "b9"} {
				n, err := living(asked, id)
				if err != nil {
					return err.Error()
				}
				all += n
			}
			if all != sessions {
				return fmt.Sprintf("%d sessions of %d live at b1, b3 and b9, by node %d", all, sessions, i)
			}
			return ""
		})
	}
}

// moved waits, where nobody has replicas of all shards, until the leaders have moved all
// sessions of a backend, and every node sends each of them elsewhere.
func (s *stage) moved(t *testing.T, was []string, left string, nodes int) {
	t.Helper()
	var own []string
	for i, home := range was {
		if home == left {
			own = append(own, fmt.Sprint("s", i))
		}
	}
	eventually(t, settleTime, func() string {
		if n := s.sum(t, nodes, "starling_moves_total", `result="done"`); int(n) != len(own) {
			return fmt.Sprintf("%v sessions of %d have moved", n, len(own))
		}
		return ""
	})
	var all sync.WaitGroup
	for i := range nodes {
		all.Go(func() {
			for _, name := range own {
				if err := s.insist(t.Context(), i, name, "for=0s", func(b string) {
					if b == left {
						t.Errorf("node %d sends %s to %s", i, name, b)
					}
				}); err != nil {
					t.Errorf("%s at node %d: %v", name, i, err)
				}
			}
		})
	}
	all.Wait()
}

// still waits until leadership has not changed for longer than a new leader leaves
// sessions where they are: as many replicas are moved at the beginning, so are leaders.
func (s *stage) still(t *testing.T) {
	t.Helper()
	const grace = 2500 * time.Millisecond
	terms, since := "", time.Now()
	eventually(t, settleTime, func() string {
		var l api.ShardList
		if err := s.admin(t, 0).Get(t.Context(), &l, "shards"); err != nil {
			return err.Error()
		}
		now := ""
		for _, one := range l.Shards {
			now += fmt.Sprint(one.Leader, one.Term, one.Step != nil, " ")
		}
		if now != terms {
			terms, since = now, time.Now()
		}
		if time.Since(since) < grace {
			return "leaders and replicas moved a moment ago: " + terms
		}
		return ""
	})
}

// TestDrainUnderStreams: a backend drains while each of 1,000 sessions has a stream.
// None is cut, the sessions move when their streams have ended, and one whose stream
// is longer than the drain timeout keeps its home, alone.
func TestDrainUnderStreams(t *testing.T) {
	t.Parallel()
	const nodes, timeout = 3, 5 * time.Second
	s := newStage(t, nodes, func(cfg *node.Config) {
		sticky(cfg, func(c *proxy.SessionConfig) { c.Consistency = "strict" })
		p := cfg.Pools[pool]
		p.Backend.DrainTimeout = timeout
		cfg.Pools[pool] = p
	}, nil)
	was := s.populate(t, crowd(), nodes)
	of, long := 0, 0
	for i, home := range was {
		if home == "b1" {
			of, long = of+1, i
		}
	}
	streams := s.occupy(t, was, long)
	drained := time.Now()
	eventually(t, patience, func() string { // on a busy machine agreement may take longer than one order waits
		if err := s.admin(t, 0).Post(t.Context(), nil, "backends", "b1", "drain"); err != nil {
			return err.Error()
		}
		return ""
	})
	eventually(t, settleTime, func() string {
		if n := s.sum(t, nodes, "starling_backend_state", `backend="b1"`, `state="draining"`); n != nodes {
			return fmt.Sprintf("b1 drains at %v nodes", n)
		}
		return ""
	})
	s.stay(t, was, "b1", nodes)
	close(s.release)
	for i := range nodes {
		asked := s.admin(t, i)
		eventually(t, settleTime, func() string {
			if n, err := living(asked, "b1"); n > 1 || err != nil {
				return fmt.Sprintf("%d sessions still live at b1 by node %d, %v", n, i, err)
			}
			return ""
		})
	}
	took := time.Since(drained)
	eventually(t, settleTime, func() string { // the long one's move is wanted again after each timeout
		done, cancelled := s.sum(t, nodes, "starling_moves_total", `result="done"`), s.sum(t, nodes, "starling_moves_total", `result="cancelled"`)
		ended, seconds := s.sum(t, nodes, "starling_drains_total"), s.sum(t, nodes, "starling_drain_seconds_sum")
		if int(done) != of-1 || cancelled < 1 || ended != nodes || seconds < timeout.Seconds() {
			return fmt.Sprintf("%v moves are done and %v cancelled; %v drains are over, that took %v s", done, cancelled, ended, seconds)
		}
		return ""
	})
	if moved := s.settledAt(t, was, "b1", func(i int) bool { return i == long }, nodes); moved != of-1 {
		t.Errorf("%d sessions of %d have moved", moved, of)
	}
	if cut := s.sum(t, nodes, "starling_move_cut_streams_total"); cut != 0 || s.running() == "" {
		t.Errorf("%v streams were cut; the long one: %q", cut, s.running())
	}
	close(s.last)
	streams.Wait()
	eventually(t, settleTime, func() string {
		if v := s.session(t, 2, fmt.Sprint("s", long)); v.Backend == "b1" || v.Epoch != 2 {
			return fmt.Sprintf("after its long stream it is %+v", v)
		}
		return ""
	})
	t.Logf("%d of %d sessions lived at b1; they had moved %v after the drain began", of, len(was), took.Round(time.Millisecond))
}

// stay checks that those who live at a backend do so by their leaders' word, and that
// every node's replicas come to count them: a follower may be a moment behind.
func (s *stage) stay(t *testing.T, was []string, home string, nodes int) {
	t.Helper()
	of := 0
	for i := range was {
		if was[i] != home {
			continue
		}
		of++
		if v := s.session(t, i%nodes, fmt.Sprint("s", i)); v.Backend != home || v.Epoch != 1 {
			t.Errorf("the stream of s%d runs at %s, and its session is %+v", i, home, v)
		}
	}
	for i := range nodes {
		eventually(t, settleTime, func() string {
			if n, err := living(s.admin(t, i), home); n != of || err != nil {
				return fmt.Sprintf("%d sessions live at %s by node %d while their streams run, %v; there were %d", n, home, i, err, of)
			}
			return ""
		})
	}
}

// occupy has every session begin one, which must be answered whole, and returns when
// all run. One lasts longer than the others.
func (s *stage) occupy(t *testing.T, homes []string, long int) *sync.WaitGroup {
	t.Helper()
	var all, begun sync.WaitGroup
	for i, home := range homes {
		query := "for=10m"
		if i == long {
			query += "&whole=1"
		}
		begun.Add(1)
		all.Go(func() {
			once := sync.OnceFunc(begun.Done)
			defer once()
			if err := s.insist(t.Context(), i%3, fmt.Sprint("s", i), query, func(b string) {
				if b != home {
					t.Errorf("s%d: its stream is at %s, and it lives at %s", i, b, home)
				}
				once()
			}); err != nil {
				t.Errorf("the stream of s%d: %v", i, err)
			}
		})
	}
	begun.Wait()
	return &all
}
