package consensus

import (
	"bytes"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/starling-lb/starling/consensus/store"
)

func written(level slog.Level, say func(hclog.Logger)) string {
	var out bytes.Buffer
	say(newBridge(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: level}))).With("shard", 7).Named("transport"))
	return out.String()
}

func TestLevelsAreKept(t *testing.T) {
	all := func(l hclog.Logger) {
		l.Trace("one")
		l.Debug("two")
		l.Info("three", "servers", hclog.Fmt("%+v", []int{1}))
		l.Warn("four", "peer", "b")
		l.Error("five", "error", fmt.Errorf("closed: %w", net.ErrClosed))
		l.Log(hclog.Error, "six")
		l.Warn("no known peers, aborting election")
		l.Error("failed to heartbeat to", "peer", "b")
		l.Warn("failed to get previous log", "previous-index", uint64(26), "last-index", uint64(0), "error", raft.ErrLogNotFound)
		l.Warn("appendEntries rejected, sending older logs", "peer", "new", "next", uint64(1))
		l.Warn("failed to get previous log", "previous-index", uint64(26), "last-index", uint64(9), "error", raft.ErrLogNotFound)
		l.Warn("appendEntries rejected, sending older logs", "peer", "behind", "next", uint64(10))
	}
	got := written(slog.LevelDebug, all)
	for _, want := range []string{"level=DEBUG msg=two shard=7", "level=INFO msg=three shard=7 servers=[1]", "level=WARN msg=four shard=7 peer=b", "level=DEBUG msg=five", "level=DEBUG msg=\"no known peers, aborting election\"", "level=ERROR msg=six", "level=WARN msg=\"failed to heartbeat to\"",
		"level=DEBUG msg=\"failed to get previous log\" shard=7 previous-index=26 last-index=0", "level=DEBUG msg=\"appendEntries rejected, sending older logs\" shard=7 peer=new",
		"level=WARN msg=\"failed to get previous log\" shard=7 previous-index=26 last-index=9", "level=WARN msg=\"appendEntries rejected, sending older logs\" shard=7 peer=behind"} {
		if !strings.Contains(got, want) {
			t.Errorf("%s is missing in\n%s", want, got)
		}
	}
	got = written(slog.LevelInfo, all)
	if strings.Contains(got, "three") || strings.Contains(got, "five") || !strings.Contains(got, "four") {
		t.Errorf("at info it says\n%s", got)
	}
}

func TestNobodyFillsTheLog(t *testing.T) {
	got := written(slog.LevelInfo, func(l hclog.Logger) {
		for range 1000 {
			l.Error("failed to heartbeat to", "peer", "b")
		}
		for i := range 3 * maxTexts {
			l.Warn(fmt.Sprint("text ", i))
		}
		l.Error("failed to heartbeat to", "peer", "b")
	})
	if n := strings.Count(got, "heartbeat"); n < burst || n > 3*burst {
		t.Errorf("%d lines of one text", n)
	}
}

// TestAFailedStoreSpeaksForItself: what is wrong with one replica alone is an
// error at every try; what is wrong with all was said by the store.
func TestAFailedStoreSpeaksForItself(t *testing.T) {
	for err, want := range map[error]bool{errDisk: true, fmt.Errorf("logs: %w: %w", store.ErrFailed, errDisk): false} {
		var out bytes.Buffer
		g := &Group{ctx: t.Context(), log: slog.New(slog.NewTextHandler(&out, nil))}
		w := watch{g: g, rest: parkedRestTo / 2}
		for range 3 {
			w.later("replica does not start; it is tried again", err)
		}
		if said := strings.Count(out.String(), "level=ERROR") == 3; said != want {
			t.Errorf("%v: it says\n%s", err, out.String())
		}
		if w.again == nil || w.rest != parkedRestTo {
			t.Errorf("%v: the next try is in %v", err, w.rest)
		}
	}
}
