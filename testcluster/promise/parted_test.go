package promise_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/starling-lb/starling/node"
	"github.com/starling-lb/starling/node/api"
	"github.com/starling-lb/starling/proxy"
)

// absences are when nodes were cut off or dead.
type absences struct {
	mu  sync.Mutex // guards all
	all map[int][][2]time.Time
}

func (a *absences) note(node int, from, to time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all[node] = append(a.all[node], [2]time.Time{from, to})
}

// away says whether a stream's node was while it ran, or had been a moment before:
// its lease was over then.
func (a *absences) away(s *span) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, at := range a.all[s.node] {
		if at[0].Before(s.end.Add(time.Second)) && at[1].After(s.began.Add(-2*time.Second)) {
			return true
		}
	}
	return false
}

// TestOneBackendThroughPartitions: nodes are cut off from the others, some for so long
// that their death is agreed on, and are killed and started again, leaders too, while
// sessions take turns through all of them and are moved.
func TestOneBackendThroughPartitions(t *testing.T) {
	for _, consistency := range []string{"strict", "available"} {
		t.Run(consistency, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, 3, func(cfg *node.Config) {
				sticky(cfg, func(c *proxy.SessionConfig) { c.Consistency = consistency })
			}, nil)
			s.parted(t, consistency == "strict")
		})
	}
}

func (s *stage) parted(t *testing.T, strict bool) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	ctx := s.until(t, lasts(), 40)
	var urls, asked []string // kept over restarts
	for i := range 3 {
		urls, asked = append(urls, s.Node(i).URL()), append(asked, s.Node(i).AdminURL())
	}
	browser := &http.Client{Timeout: 8 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	var all sync.WaitGroup
	const sessions = 8
	for i := range 2 * sessions {
		all.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(i)))
			for ctx.Err() == nil {
				n := r.IntN(3)
				length := time.Duration(50+r.IntN(300)) * time.Millisecond
				if r.IntN(3) == 0 {
					length *= 12
				}
				_ = turn(ctx, browser, urls[n], fmt.Sprint("s", i%sessions), fmt.Sprintf("for=%v&node=%d", length, n), nil) // it may break, or be refused
				pauseFor(ctx, time.Duration(r.IntN(1000))*time.Millisecond)
			}
		})
	}
	all.Go(func() { // an operator
		r := rand.New(rand.NewPCG(seed, 100))
		for ctx.Err() == nil {
			postMove(ctx, asked[r.IntN(3)], fmt.Sprint("s", r.IntN(sessions)), fmt.Sprint("b", 1+r.IntN(3)))
			pauseFor(ctx, time.Duration(r.IntN(200))*time.Millisecond)
		}
	})
	a := s.part(t, ctx, rand.New(rand.NewPCG(seed, 200)))
	all.Wait()
	s.Heal()
	eventually(t, patience, s.running)
	var lines map[string]line
	eventually(t, patience, func() string {
		lines = logged(t, s.logs)
		for session, streams := range s.streams {
			for _, one := range streams {
				if _, ok := lines[one.id]; !ok && !a.away(one) {
					return fmt.Sprintf("no log has the stream of %s in epoch %d at %s", session, one.epoch, one.backend)
				}
			}
		}
		return ""
	})
	matched := s.judge(t, lines, strict, a.away)
	_, moved := s.overlaps()
	t.Logf("seed %d: %d streams, %d overlaps, each of them counted; sessions were seen at %d more backends than one each", seed, s.total, matched, moved)
	if s.total < 40 || moved == 0 {
		t.Errorf("seed %d: %d streams and %d moves show little", seed, s.total, moved)
	}
	for i := range 3 { // and all is well afterwards
		for n := range sessions {
			if home := s.at(t, i, fmt.Sprint("s", n)); home == "" {
				t.Errorf("s%d is nowhere by node %d", n, i)
			}
		}
	}
}

// part cuts nodes off and kills them, one at a time, until ctx ends.
func (s *stage) part(t *testing.T, ctx context.Context, r *rand.Rand) *absences {
	a := &absences{all: make(map[int][][2]time.Time)}
	for i := 1; ctx.Err() == nil; i++ {
		node, from := r.IntN(3), time.Now()
		if i%3 == 0 {
			s.Kill(node)
			pauseFor(ctx, time.Duration(r.IntN(2000))*time.Millisecond)
			if err := s.Restart(t.Context(), node); err != nil {
				t.Fatal(err)
			}
		} else {
			s.Partition([]int{node})
			pauseFor(ctx, time.Duration(500+r.IntN(5500))*time.Millisecond)
			s.Heal()
		}
		a.note(node, from, time.Now())
		pauseFor(ctx, time.Duration(r.IntN(1500))*time.Millisecond)
	}
	return a
}

// postMove asks for one; whether it is made shows at the backends.
func postMove(ctx context.Context, adminURL, session, to string) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	c, err := clientOf(adminURL)
	if err == nil {
		_ = c.Post(ctx, api.Destination{Backend: to}, "sessions", pool, session, "move")
	}
}
