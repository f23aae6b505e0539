package shards

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// TestAWarmingHomeIsLeft by every session that comes, once: at once where the pool wants
// availability, and where it is strict when no other turn of the session runs. Who does
// not come stays bound, for nobody declared the backend dead; and nobody is moved there.
func TestAWarmingHomeIsLeft(t *testing.T) {
	for _, pool := range []string{"chat", "llm"} {
		bubble(t, func(t *testing.T, w *world) {
			for _, session := range []string{"comes", "waits", "is away"} {
				w.at("d", pool, session, 1)
			}
			w.graced()
			other := w.must("e", pool, "waits", 1)
			w.set(func() { w.bad[pool+"-b1"] = true })
			if h, err := w.leave(pool, "comes", 2); err != nil || h.Backend != pool+"-b2" || h.Epoch != 2 || h.Lookup != LookupRepin {
				t.Errorf("%s: who comes: %+v, %v", pool, h, err)
			}
			h, err := w.leave(pool, "waits", 2)
			if strict := pool == "llm"; strict && !errors.Is(err, ErrNoLeader) || !strict && h.Backend != pool+"-b2" {
				t.Errorf("%s: beside another turn: %+v, %v", pool, h, err)
			}
			other.End()
			if h, err := w.leave(pool, "waits", 2); err != nil || h.Backend != pool+"-b2" || h.Epoch != 2 {
				t.Errorf("%s: when that has ended: %+v, %v", pool, h, err)
			}
			w.wait(time.Minute)
			for session, want := range map[string]string{"comes": "-b2@2", "waits": "-b2@2", "is away": "-b1@1"} {
				if b, _ := w.node("a").machine.Get(w.key(pool, session)); fmt.Sprintf("%s@%d", b.Backend, b.Epoch) != pool+want {
					t.Errorf("%s: %q is bound to %+v", pool, session, b)
				}
			}
			w.set(func() {
				w.leaving, w.bad[pool+"-b2"] = []Leaver{{Pool: pool, Backend: pool + "-b2"}}, true
			})
			w.until("the drained one is left", func() bool {
				b, _ := w.node("a").machine.Get(w.key(pool, "comes"))
				return b.Backend == pool+"-b3" || b.Backend == pool+"-b4"
			})
			w.set(func() { delete(w.bad, pool+"-b1") })
			if h := w.at("c", pool, "is away", 3); h.Backend != pool+"-b1" || h.Epoch != 1 {
				t.Errorf("%s: who comes when it is ready: %+v", pool, h)
			}
		})
	}
}

// leave has a turn on node d that finds its backend warming, unless that is another by
// now.
func (w *world) leave(pool, session string, to int) (Home, error) {
	w.t.Helper()
	turn := w.must("d", pool, session, 1)
	defer turn.End()
	if turn.Home().Backend != pool+"-b1" {
		return turn.Home(), nil
	}
	return turn.Rebind(w.t.Context(), turn.Home(), "warming", func() string { return fmt.Sprintf("%s-b%d", pool, to) })
}
