package consensus

import (
	"bytes"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
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
		l.Error("failed to heartbeat to", "peer", "b")
	}
	got := written(slog.LevelDebug, all)
	for _, want := range []string{"level=DEBUG msg=two shard=7", "level=INFO msg=three shard=7 servers=[1]", "level=WARN msg=four shard=7 peer=b", "level=DEBUG msg=five", "level=ERROR msg=six", "level=WARN msg=\"failed to heartbeat to\""} {
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
