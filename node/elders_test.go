package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/starling-lb/starling/node/handover"
	"github.com/starling-lb/starling/node/journal"
	"github.com/starling-lb/starling/proxy/backend"
)

func eventually(t *testing.T, look func() string) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for by := time.Now().Add(time.Minute); ; <-tick.C {
		wrong := look()
		if wrong == "" {
			return
		}
		if time.Now().After(by) {
			t.Fatal(wrong)
		}
	}
}

// told is an elder that tells what it carries, until stop is called.
func (f *filed) told(boot uint64, c handover.Counts) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var telling sync.WaitGroup
	telling.Go(func() {
		handover.NewLink(f.dir.path, boot).Tell(ctx, time.Millisecond, func() handover.Counts { return c }, nil)
	})
	return func() { cancel(); telling.Wait() }
}

// A node whose upgrade was undone while an older process lives waits for that one to
// find it again: nothing is counted twice, nor forgotten, nor said to have ended.
func TestAnElderIsFoundAgain(t *testing.T) {
	f := newFiled(t, twoPools)
	stay, err := handover.Stay(f.dir.path, 7)
	if err != nil {
		t.Fatal(err)
	}
	again := func() {
		f.links.Load().Stop()
		f.hostElders()
	}
	again()
	counts := handover.Counts{
		Version: "v1", Since: time.Unix(1, 0), InFlight: 3, Backends: []handover.Carried{{ID: "b1", InFlight: 3}},
		Ended: []handover.End{{Pool: "p", Backend: "b1", Reason: string(backend.Done), Count: 5}},
	}
	is := func(carried, ended int64) string {
		b := f.proxy.Pools()[0].Named("b1")
		if c, e := b.Carried(), f.proxy.Ended()[backend.Done]; c != carried || e != ended {
			return fmt.Sprintf("%d streams are carried, %d have ended; want %d and %d", c, e, carried, ended)
		}
		return ""
	}
	stop := f.told(7, counts)
	eventually(t, func() string { return is(3, 5) })
	look := &changes{n: f.Node}
	look.lookAtElders()
	stop()
	again()
	look.lookAtElders()
	if wrong := is(3, 5); wrong != "" {
		t.Errorf("while it looks for the node: %s", wrong)
	}
	stop = f.told(7, counts)
	eventually(t, func() string {
		if len(f.links.Load().Elders()) != 1 {
			return "it has not found the node"
		}
		return is(3, 5)
	})
	if _, ok := look.elders[7]; !ok {
		t.Error("it was said to have ended")
	}
	stop()
	handover.Depart(stay)
	eventually(t, func() string { return is(0, 5) })
	look.lookAtElders()
	if len(look.elders) > 0 {
		t.Errorf("they have ended: %v", look.elders)
	}
}

// Of two upgrades in a row the last process counts what the first one has ended since the
// second, which has counted the rest.
func TestWhatAnElderEndedIsCountedOnce(t *testing.T) {
	f, g := newFiled(t, twoPools), newFiled(t, twoPools)
	first := func(count int64) []handover.Known {
		return []handover.Known{{Boot: 7, Counts: handover.Counts{Ended: []handover.End{{Pool: "p", Backend: "b1", Reason: string(backend.Done), Count: count}}}}}
	}
	living := []uint64{7}
	f.countEnded(first(5), living)
	g.goOnWith(f.bequeath())
	g.countEnded(nil, living) // it has not found the node yet
	g.countEnded(first(8), living)
	if before, after := f.proxy.Ended()[backend.Done], g.proxy.Ended()[backend.Done]; before != 5 || after != 3 {
		t.Errorf("of 8 streams that ended one counts %d, the next %d", before, after)
	}
}

// A node with a supervisor ends after its elders, but waits neither for a life of its own
// nor for a lock of which nobody tells anything.
func TestWhoIsNotWaitedFor(t *testing.T) {
	f := newFiled(t, twoPools)
	f.opt.Notify, f.upgrade.mute = "/nowhere/notify", 100*time.Millisecond
	stay, err := handover.Stay(f.dir.path, 7)
	if err != nil {
		t.Fatal(err)
	}
	defer handover.Depart(stay)
	for _, own := range [][]uint64{{7}, nil} { // a life of its own; one that is mute
		f.links.Load().Stop()
		f.upgrade.mu.Lock()
		f.upgrade.lives = own
		f.upgrade.mu.Unlock()
		f.hostElders()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		if f.awaitElders(ctx); ctx.Err() != nil {
			t.Errorf("it was waited for; own lives are %v", own)
		}
		cancel()
	}
	stop := f.told(7, handover.Counts{Since: time.Unix(1, 0), InFlight: 1})
	defer stop()
	eventually(t, func() string {
		if _, heard := f.links.Load().Carrying(); !heard {
			return "the elder is not heard"
		}
		return ""
	})
	ctx, cancel := context.WithTimeout(t.Context(), 3*f.upgrade.mute)
	defer cancel()
	if f.awaitElders(ctx); ctx.Err() == nil {
		t.Error("an elder that tells of itself was not waited for")
	}
}

// A supervisor that means the node, and does not know yet that it is another process, is
// heard; later it knows.
func TestTheEndIsPassedOn(t *testing.T) {
	f := newFiled(t, twoPools)
	lock, err := os.CreateTemp(t.TempDir(), "lock")
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	ended := filepath.Join(t.TempDir(), "ended")
	heir, err := handover.Start(handover.Program{Path: "/bin/sh", Args: []string{"sh", "-c", `trap 'exit 0' TERM; echo >"$0"; while :; do sleep 0.05; done`, ended}}, lock, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = heir.Undo(errors.New("the test is over")) }()
	eventually(t, func() string { _, err := os.Stat(ended); return text(err) })
	u := &f.upgrade
	u.heir, u.gone = heir, time.Now()
	if f.PassEnd() {
		t.Error("nobody supervises it")
	}
	f.opt.Notify = "/nowhere/notify"
	if u.gone = time.Now().Add(-time.Hour); f.PassEnd() {
		t.Error("the supervisor knows by now")
	}
	select {
	case <-heir.Ended():
		t.Fatal("the new process was told to end")
	default:
	}
	if u.gone = time.Now().Add(time.Hour); !f.PassEnd() { // however slow this machine is
		t.Error("the supervisor does not know yet")
	}
	<-heir.Ended()
}

// What an heir finds decided, its elder has told; at another start it is told.
func TestWhatAnHeirDoesNotTell(t *testing.T) {
	for heir, want := range map[bool]int{false: 1, true: 0} {
		n := &Node{journal: journal.New()}
		if heir {
			n.opt.Before = new(handover.Elder)
		}
		n.told(backend.Event{Pool: "p", Backend: "b1", From: backend.Active, To: backend.Ejected, Reason: "by an operator"})
		if got := len(n.journal.Last(10)); got != want {
			t.Errorf("an heir: %v, and %d events", heir, got)
		}
		n.taken.Store(true)
		n.told(backend.Event{Pool: "p", Backend: "b1"})
		if got := len(n.journal.Last(10)); got != want+1 {
			t.Errorf("an heir that has taken over: %v, and %d events", heir, got)
		}
	}
}
