package consensus

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"
)

// TestAcknowledgedSurvives loses each node of three in turn, for good and with all
// that it kept, while commands come: whatever was acknowledged until then, and
// after, is on both of the others, once and in one order.
func TestAcknowledgedSurvives(t *testing.T) {
	t.Parallel()
	for _, lost := range three() {
		t.Run(lost, func(t *testing.T) {
			t.Parallel()
			w := newTown(t, 3)
			w.open(1, three(), three()...)
			w.leader(1)
			acked := w.talkUntil(func(count func() int) {
				w.eventually(reaches(count, 100))
				w.nodes[lost].kill()
				w.eventually(reaches(count, count()+100))
			})
			kept := w.agree(1, others(lost)...)
			for _, line := range acked {
				if slices.Index(kept, line) < 0 {
					t.Errorf("%s was acknowledged and is gone with %s", line, lost)
				}
			}
			slices.Sort(kept)
			if once := slices.Compact(slices.Clone(kept)); len(once) != len(kept) {
				t.Errorf("%d commands were done twice", len(kept)-len(once))
			}
		})
	}
}

func reaches(count func() int, want int) func() string {
	return func() string {
		if n := count(); n < want {
			return fmt.Sprintf("%d commands are acknowledged, want %d", n, want)
		}
		return ""
	}
}

// talkUntil has a caller on each node propose lines, each one once, while f runs,
// and returns those that were acknowledged.
func (w *town) talkUntil(f func(count func() int)) (acked []string) {
	ctx, cancel := context.WithCancel(w.t.Context())
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, name := range three() {
		all.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				line := fmt.Sprint(name, " ", i)
				short, end := context.WithTimeout(ctx, 300*time.Millisecond)
				if g := w.nodes[name].groups.Group(1); g != nil {
					if _, err := g.Propose(short, []byte(line)); err == nil {
						mu.Lock()
						acked = append(acked, line)
						mu.Unlock()
					}
				}
				end()
				select {
				case <-time.After(time.Millisecond): // followers refuse at once
				case <-ctx.Done():
				}
			}
		})
	}
	f(func() int { mu.Lock(); defer mu.Unlock(); return len(acked) })
	cancel()
	all.Wait()
	return acked
}
