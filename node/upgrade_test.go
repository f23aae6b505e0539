package node

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/starling-lb/starling/node/admin"
	"github.com/starling-lb/starling/node/handover"
	"github.com/starling-lb/starling/node/quorum"
	"github.com/starling-lb/starling/shards"
)

// An upgrade that cannot begin leaves the node as it was: it reloads, takes what
// operators decide, and ends as ever. The real ones are in cmd/starling.
func TestUpgradeThatCannotBegin(t *testing.T) {
	f := newFiled(t, twoPools)
	if _, err := f.Upgrade(t.Context()); err == nil || !strings.Contains(err.Error(), "starling serve") {
		t.Errorf("a node within another process: %v", err)
	}
	f.opt.Program = handover.Program{Path: "/nowhere/starling", Args: []string{"starling"}}
	if _, err := f.Upgrade(t.Context()); err == nil || !strings.Contains(err.Error(), "start /nowhere/starling") {
		t.Errorf("a program that is not there: %v", err)
	}
	if _, err := f.Reload(t.Context()); err != nil {
		t.Errorf("it does not reload any more: %v", err)
	}
	if err := f.ChangeBackend("b1", admin.Drain); err != nil {
		t.Errorf("operators decide nothing any more: %v", err)
	}
	f.supply.freeze(true)
	if err := f.ChangeBackend("b1", admin.Undrain); err == nil || !strings.Contains(err.Error(), "an upgrade of this node is under way") {
		t.Errorf("while another process has read what was decided: %v", err)
	}
	f.supply.freeze(false)
	now, cancel := context.WithCancel(t.Context())
	cancel()
	if err := f.Stop(now); err != nil {
		t.Error(err)
	}
	if _, err := f.Upgrade(t.Context()); err == nil {
		t.Error("a node that has ended was upgraded")
	}
}

// While a process takes back what it let go of, it has no other life yet by which its
// elders, one of which is its own life before, could ask: that one would ask by itself.
func TestNobodyAsksByHimself(t *testing.T) {
	n := new(Node)
	h := host{n: n}
	if _, err := h.Call(t.Context(), "n", shards.AskService, nil); !errors.Is(err, errNoSessions) {
		t.Errorf("before its first life: %v", err)
	}
	before := new(quorum.Quorum)
	n.quorum.Store(before)
	h = host{n, before}
	if _, err := h.Call(t.Context(), "n", shards.AskService, nil); !errors.Is(err, errNotYet) {
		t.Errorf("asked: %v", err)
	}
	if err := h.Feed(t.Context(), "n", shards.FeedService, nil, nil); !errors.Is(err, errNotYet) {
		t.Errorf("a feed: %v", err)
	}
	n.quorum.Store(new(quorum.Quorum))
	if _, err := h.Call(t.Context(), "n", "other", nil); err == nil || errors.Is(err, errNotYet) {
		t.Errorf("by the next life: %v", err)
	}
}
