package node

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/starling-lb/starling/node/admin"
	"github.com/starling-lb/starling/node/api"
)

// TestOthersAskAClosedList: what is not on it, another node neither learns nor does.
func TestOthersAskAClosedList(t *testing.T) {
	n := &Node{}
	for _, text := range []string{`{"at":"config"}`, `{"at":"status","token":"x"}`, `{}`, `no JSON`} {
		if _, err := n.lookedAt(t.Context(), "a", []byte(text)); err == nil {
			t.Errorf("a node may be asked %s", text)
		}
	}
	for _, text := range []string{`{"do":"upgrade"}`, `{"do":"reload","file":"x"}`, `{}`, `no JSON`} {
		if _, err := n.toldTo(t.Context(), "a", []byte(text)); err == nil {
			t.Errorf("a node may be told %s", text)
		}
	}
}

// TestQuestionsAboutAllAreBounded in number, and their answers in bytes.
func TestQuestionsAboutAllAreBounded(t *testing.T) {
	n := &Node{asking: make(chan struct{}, wholeMost)}
	for range wholeMost {
		n.asking <- struct{}{}
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := n.StreamsOfAll(over, 10)
	var refused *admin.Error
	if !errors.As(err, &refused) || refused.Code != admin.Conflict || !strings.Contains(refused.Message, "4 questions about all nodes are under way") {
		t.Errorf("one more than there is room for: %v", err)
	}

	var taken atomic.Int64
	taken.Store(wholeBytes - 40)
	answer := []byte(`{"streams":[],"count":7}`)
	if got, err := understand[someStreams](answer, &taken); err != nil || got.Count != 7 {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := understand[someStreams](answer, &taken); err == nil || got != nil || !strings.Contains(err.Error(), "is left out") {
		t.Errorf("more than there is room for: %+v, %v", got, err)
	}
	if got, err := understand[api.Status]([]byte(`[]`), new(atomic.Int64)); err == nil || got != nil {
		t.Errorf("an answer of another kind: %+v", got)
	}
}

// What this node says of itself is asked for as the others' answers are: for a time, and
// beside them.
func TestOwnAnswerIsBounded(t *testing.T) {
	n := newStill(t, nil)
	all, err := askAll(t.Context(), n.Node, look{At: lookStreams}, func(ctx context.Context) someStreams {
		end, bounded := ctx.Deadline()
		if left := time.Until(end); !bounded || left > wholeTime {
			t.Errorf("it may take %v", left)
		}
		return n.someStreams(ctx, 7)
	})
	if err != nil || len(all) != 1 || all[0].said == nil || !all[0].Self || all[0].Error != "" {
		t.Errorf("%+v, %v", all, err)
	}
}
