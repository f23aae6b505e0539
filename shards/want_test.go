package shards

import (
	"encoding/binary"
	"fmt"
	"testing"
	"time"
)

// drain has a backend of the pool llm drain, or ends that.
func (w *world) drain(backend string, on bool) {
	w.set(func() {
		if delete(w.bad, backend); on {
			w.leaving, w.bad[backend] = append(w.leaving, Leaver{Pool: "llm", Backend: backend}), true
			return
		}
		w.leaving = nil
	})
}

// home is what stands at node a.
func (w *world) home(session string) Binding {
	b, _ := w.node("a").machine.Get(w.key("llm", session))
	return b
}

// TestADrainTakenBack: a session that was busy all through a drain stays when the
// drain has been taken back, and leaves with the next one.
func TestADrainTakenBack(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		turn := w.must("d", "llm", "s", 1)
		w.graced()
		w.drain("llm-b1", true)
		w.wait(2 * time.Second)
		w.drain("llm-b1", false)
		turn.End()
		w.wait(5 * time.Second)
		if b := w.home("s"); b.Backend != "llm-b1" || b.Epoch != 1 {
			t.Errorf("it is %+v", b)
		}
		if m := w.node("a").router.Moves()["llm"]; m.Done != 0 || m.Cancelled != 1 {
			t.Errorf("moves: %+v", m)
		}
		w.drain("llm-b1", true)
		w.until("it leaves with the next drain", func() bool { return w.home("s").Backend != "llm-b1" })
	})
}

// TestADrainTakenBackOfWhatIsNotReady: it moves nobody either, for who comes when the
// backend is ready again is at home there.
func TestADrainTakenBackOfWhatIsNotReady(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		turn := w.must("d", "llm", "s", 1)
		w.graced()
		w.drain("llm-b1", true)
		w.wait(2 * time.Second)
		w.set(func() { w.leaving = nil }) // ejected, or warming
		turn.End()
		w.wait(5 * time.Second)
		if b := w.home("s"); b.Backend != "llm-b1" || b.Epoch != 1 {
			t.Errorf("it is %+v", b)
		}
	})
}

// TestADrainMeetsAnother: the backend that was chosen for a busy session is out of use
// when it is idle. It goes to one that is not, in one move; and where an operator
// chose, nowhere.
func TestADrainMeetsAnother(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		session := ""
		for i := 0; session == "" || w.Sets()[0].Choose(w.key("llm", session), func(id string) bool { return id != "llm-b1" }) != "llm-b2"; i++ {
			session = fmt.Sprint("s", i)
		}
		turn := w.must("d", "llm", session, 1)
		other := w.must("d", "llm", "other", 3)
		w.graced()
		if w.shift("e", "other", "llm-b2", time.Second) {
			t.Error("it moved beneath a turn")
		}
		w.drain("llm-b1", true)
		w.wait(2 * time.Second)
		w.drain("llm-b2", true)
		turn.End()
		other.End()
		w.wait(5 * time.Second)
		if b := w.home(session); b.Backend != "llm-b3" && b.Backend != "llm-b4" || b.Epoch != 2 {
			t.Errorf("it is %+v", b)
		}
		if b := w.home("other"); b.Backend != "llm-b3" || b.Epoch != 1 {
			t.Errorf("the other one is %+v", b)
		}
	})
}

// TestManyWantsCostLittle: while a holder cannot be asked, one batch of what waits is
// looked at now and then, however much waits; and what waits goes on when it can be.
func TestManyWantsCostLittle(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.at("e", "llm", "s", 1)
		w.graced()
		w.isolate("e", true)
		w.node("a").router.desk.feed(Holder{"e", 1}).cut()
		o := w.node("a").router.desk.owner(1)
		w.until("its feed is cut", func() bool { o.mu.Lock(); defer o.mu.Unlock(); return !o.reign.heeds(Holder{"e", 1}) })
		const many = 20 * maxHold
		b := w.home("s")
		o.mu.Lock()
		r, began := o.reign, o.reign.numbered
		for i := range uint64(many) {
			k := w.key("llm", "s")
			binary.BigEndian.PutUint64(k[8:], i)
			if _, err := r.post(want{session: k, from: b.Epoch, to: "llm-b2", until: w.now() + time.Minute, strict: true}); err != nil {
				t.Fatal(err)
			}
		}
		o.mu.Unlock()
		before := 0
		w.get(func() { before = w.looks })
		for range 100 {
			o.mu.Lock()
			r.launch()
			o.mu.Unlock()
		}
		w.get(func() {
			if n := w.looks - before; n > maxHold {
				t.Errorf("%d wishes were looked at in 100 rounds, want one batch of %d", n, maxHold)
			}
		})
		if r.numbered != began {
			t.Error("a hold began")
		}
		w.isolate("e", false)
		w.until("all are done", func() bool { o.mu.Lock(); defer o.mu.Unlock(); return o.reign == r && len(r.wants) == 0 })
	})
}

// TestRecent: who was moved for the asking is remembered for as long as there is room,
// and nobody is refused for what is long past.
func TestRecent(t *testing.T) {
	var r recent
	key := func(i int) (k Key) {
		binary.BigEndian.PutUint64(k[:], uint64(i))
		return k
	}
	now := time.Hour
	for i := range maxRecent {
		if !r.note(key(i), now) {
			t.Fatalf("number %d is refused", i)
		}
	}
	if r.note(key(maxRecent), now+rebindRest-1) {
		t.Error("there is room for more in one rebindRest")
	}
	if !r.note(key(1), now+1) {
		t.Error("one that is known is refused")
	}
	now += rebindRest
	if !r.note(key(maxRecent), now) {
		t.Error("it is refused, and the others are long past")
	}
	if at, known := r.last(key(0)); !known || at != time.Hour {
		t.Errorf("the first one: %v, %v", at, known)
	}
	if r.note(key(2), now+recentKept); len(r.newer) != 1 {
		t.Errorf("%d are in the newer half after its time", len(r.newer))
	}
	if _, known := r.last(key(0)); known {
		t.Error("the first one is remembered for ever")
	}
}
