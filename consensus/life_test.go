package consensus

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// TestUnanswered: entries that are committed and that the state machine has not taken
// yet are left unanswered by Raft as it shuts down. Who asked is told that the outcome
// is unknown, and nothing of ours waits on for ever.
func TestUnanswered(t *testing.T) {
	w := newTown(t, 1)
	w.open(1, []string{"a"}, "a")
	l := w.leader(1).groups.Group(1).current()
	const entries = 32
	got := make(chan error, entries)
	d := w.nodes["a"].diary(1)
	d.mu.Lock() // the first entry is taken, and the others wait
	for range entries {
		next := l.raft.LastIndex() + 1
		f := l.raft.Apply(encodeEntry([][]byte{[]byte("x")}), time.Second)
		go func() { got <- l.outcome(f) }()
		w.eventually(func() string {
			if l.raft.CommitIndex() < next {
				return "the entry is not committed"
			}
			return ""
		})
	}
	now, cancel := context.WithCancel(t.Context())
	cancel()
	l.end(now, ErrStopped)
	<-l.ending
	d.mu.Unlock()
	<-l.ended
	unanswered := 0
	for range entries {
		switch err := <-got; {
		case errors.Is(err, raft.ErrRaftShutdown):
			unanswered++
		case err != nil:
			t.Errorf("want no error or that of the shutdown, got %v", err)
		}
	}
	if unanswered == 0 {
		t.Error("Raft has answered all: is this cure still needed?")
	}
	w.eventually(func() string {
		if stacks := allStacks(); strings.Contains(stacks, "(*life).outcome") {
			return "somebody waits still:\n" + stacks
		}
		return ""
	})
}

func allStacks() string {
	b := make([]byte, 4<<20)
	return string(b[:runtime.Stack(b, true)])
}

// TestStopWhileOneOpens: what Stop could not know of does not run behind it.
func TestStopWhileOneOpens(t *testing.T) {
	n := newTown(t, 1).nodes["a"]
	g, err := n.groups.Open(Spec{ID: groupID(1), Founders: []string{"a"}, Machine: func() StateMachine {
		if err := n.groups.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		return &diary{}
	}})
	if !errors.Is(err, ErrStopped) || g != nil || n.groups.Group(1) != nil {
		t.Errorf("after Stop it opened: %v, error %v", g != nil, err)
	}
}
