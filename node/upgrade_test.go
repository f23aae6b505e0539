package node

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

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
	if err := mayBeFollowed(1); err == nil || !strings.Contains(err.Error(), "replace the container") {
		t.Errorf("the first process of a container: %v", err)
	}
	if err := mayBeFollowed(2); err != nil {
		t.Errorf("the second one: %v", err)
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

// Whatever the new process does instead of becoming the node, the old one is it again,
// with its sessions, and nothing is left of the other.
func TestUpgradeToWhatIsNoHeir(t *testing.T) {
	f := newFiled(t, `
pools:
  p: {backends: [{id: b1, url: http://127.0.0.1:1}], health: {enabled: false}, sticky: {}}
listeners:
  - {address: 127.0.0.1:0}
`)
	f.upgrade.openTime = 300 * time.Millisecond
	const took = `echo $$ >"$0"; read -r offer <&3; echo '{"word":"take"}' >&3; read -r yours <&3; `
	for _, c := range []struct{ name, does, why string }{
		{"hangs", `echo $$ >"$0"; exec sleep 100`, "the new process was not ready to begin within 300ms"},
		{"ends", `echo $$ >"$0"; exit 7`, "ended before it served (exit status 7)"},
		{"hangs up, and lives", `echo $$ >"$0"; exec 3>&-; exec sleep 100`, "ended before it served (signal: killed)"},
		{"talks nonsense", `echo $$ >"$0"; echo nonsense >&3; exec sleep 100`, "wait for take: invalid character"},
		{"is too early", `echo $$ >"$0"; echo '{"word":"ready"}' >&3; exec sleep 100`, `says "ready" where "take" is due`},
		{"takes all, and hangs", took + `exec sleep 100`, "the new process did not serve within 300ms"},
		{"takes all, and ends", took + `exit 8`, "ended before it served (exit status 8)"},
	} {
		pid := filepath.Join(t.TempDir(), "pid")
		if f.upgrade.startTime = 0; c.name == "hangs" {
			f.upgrade.startTime = 300 * time.Millisecond
		}
		f.opt.Program = handover.Program{Path: "/bin/sh", Args: []string{"sh", "-c", c.does, pid}}
		if _, err := f.Upgrade(t.Context()); err == nil || !strings.Contains(err.Error(), c.why) {
			t.Errorf("one that %s: %v, want %q", c.name, err, c.why)
		}
		text, err := os.ReadFile(pid)
		if os.IsNotExist(err) && c.name == "hangs" {
			continue // it was ended before it could say who it is
		}
		if n, bad := strconv.Atoi(strings.TrimSpace(string(text))); err != nil || bad != nil || syscall.Kill(n, 0) == nil {
			t.Errorf("one that %s: process %q is left, %v, %v", c.name, text, err, bad)
		}
		if err := f.Ready(); err != nil { // it is, when the upgrade has failed
			t.Errorf("after one that %s: %v", c.name, err)
		}
		if _, err := f.Reload(t.Context()); err != nil {
			t.Errorf("after one that %s: %v", c.name, err)
		}
	}
}

// Who takes the node back never says, not for an instant, that no older process lives:
// others would hold it for dead, and move sessions beneath its turns.
func TestWhoLivesIsKnownThroughout(t *testing.T) {
	f := newFiled(t, twoPools)
	stay, err := handover.Stay(f.dir.path, 7)
	if err != nil {
		t.Fatal(err)
	}
	defer handover.Depart(stay)
	again := func() {
		f.links.Load().Stop()
		f.hostElders()
	}
	again()
	over := make(chan struct{})
	var asking sync.WaitGroup
	asking.Go(func() {
		for {
			select {
			case <-over:
				return
			default:
			}
			if !slices.Contains(f.living(), 7) {
				t.Error("the older process is not among the living")
				return
			}
		}
	})
	for range 50 {
		again()
	}
	close(over)
	asking.Wait()
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
