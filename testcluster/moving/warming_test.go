package moving_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/starling-lb/starling/node"
	"github.com/starling-lb/starling/node/api"
	"github.com/starling-lb/starling/proxy"
	"github.com/starling-lb/starling/testcluster/llm"
)

// home is where a session lives, as its shard's leader says.
func (s *stage) home(t *testing.T, i int, session string) (v api.Session) {
	t.Helper()
	eventually(t, patience, func() string {
		if err := s.admin(t, i).Get(t.Context(), &v, "sessions", pool, session); err != nil {
			return err.Error()
		}
		if v.Provisional || v.Epoch == 0 {
			return fmt.Sprintf("%s is not bound: %+v", session, v)
		}
		return ""
	})
	return v
}

// goes takes a turn of a session that must be answered whole.
func (s *stage) goes(t *testing.T, i int, session string) string {
	t.Helper()
	home, err := s.turn(t.Context(), i, session, 1)
	if err != nil {
		t.Errorf("%s at node %d: %v", session, i, err)
	}
	return home
}

// TestAWarmingBackendIsLeft: a backend says that it is not ready. The stream that runs
// there goes on; each of its sessions lives elsewhere from its next turn on, moved once;
// all others stay. A backend that drains meanwhile has its sessions moved past the
// warming one.
func TestAWarmingBackendIsLeft(t *testing.T) {
	t.Parallel()
	s := newStage(t, 3, llm.Options{}, func(cfg *node.Config, p *proxy.PoolConfig) {
		cfg.Shards.Count = 2
		p.Health.Path, p.Health.ReadyPath = "/v1/models", "/health" // faults speak for the second only
		p.Health.Interval, p.Rebalance.Enabled = 200*time.Millisecond, false
		p.Health.Timeout = 10 * time.Second // a busy machine is no dead backend
	})
	was, of := map[string]api.Session{}, map[string]int{}
	for i := 0; i < 18 || i < 1000 && of["b1"]*of["b2"] == 0; i++ { // one time in a thousand one of them has none of the first
		session := fmt.Sprint("s", i)
		s.goes(t, i%nodes, session)
		was[session] = s.home(t, i%nodes, session)
		of[was[session].Backend]++
	}
	session := ""
	for name, v := range was {
		if v.Backend == "b1" {
			session = name
		}
	}
	if of["b1"] == 0 || of["b2"] == 0 {
		t.Fatalf("the sessions live at %v", of)
	}
	long := s.long(t, session)
	s.ready(t, 0, false)
	for i := range nodes {
		for name, before := range was {
			epoch := before.Epoch
			if before.Backend == "b1" {
				epoch++
			}
			eventually(t, patience, func() string { // a node that cannot agree in time makes a detour
				at, v := s.goes(t, i, name), s.home(t, i, name)
				if stays := v.Backend == before.Backend; at != v.Backend || stays == (before.Backend == "b1") || v.Epoch != epoch {
					return fmt.Sprintf("%s was bound as %+v, is at %s by node %d, and bound as %+v", name, before, at, i, v)
				}
				return ""
			})
		}
	}
	if err := <-long; err != nil {
		t.Errorf("the stream that ran at the warming backend: %v", err)
	}
	s.post(t, 0, nil, "backends", "b2", "drain")
	for name := range was {
		eventually(t, patience, func() string {
			if v := s.home(t, 0, name); v.Backend != "b3" {
				return fmt.Sprintf("%s lives at %s, while b1 warms and b2 drains", name, v.Backend)
			}
			return ""
		})
	}
	s.ready(t, 0, true)
	n := 0
	eventually(t, patience, func() string {
		if n++; s.goes(t, n%nodes, fmt.Sprint("new", n)) != "b1" {
			return "no new session comes to b1, which is ready"
		}
		return ""
	})
}

// long is a stream of a few seconds, of a session that lives at b1; it runs.
func (s *stage) long(t *testing.T, session string) <-chan error {
	t.Helper()
	ended := make(chan error, 1)
	go func() {
		home, err := s.turn(context.WithoutCancel(t.Context()), 0, session, 150)
		if err == nil && home != "b1" {
			err = fmt.Errorf("it ran at %s", home)
		}
		ended <- err
	}()
	eventually(t, patience, func() string {
		if s.Backend(0).Status().Running == 0 {
			return "the long stream has not begun"
		}
		return ""
	})
	return ended
}

// ready has a backend say whether it is, and every node hear it.
func (s *stage) ready(t *testing.T, i int, is bool) {
	t.Helper()
	f, state := llm.Faults{Health: llm.HealthFail}, `state="warming"`
	if is {
		f, state = llm.Faults{}, `state="active"`
	}
	if err := s.Backend(i).SetFaults(f); err != nil {
		t.Fatal(err)
	}
	eventually(t, patience, func() string {
		if n := s.everywhere(t, "starling_backend_state", fmt.Sprintf("backend=%q", s.Backend(i).ID), state); n != nodes {
			return fmt.Sprintf("%v nodes see that %s has %s", n, s.Backend(i).ID, state)
		}
		return ""
	})
}
