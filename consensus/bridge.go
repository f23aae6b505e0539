package consensus

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/starling-lb/starling/consensus/store"
)

// Raft says the same for each group, and again at each try: with a node away,
// hundreds of lines a second.
const (
	burst      = 8 // lines of one text
	burstEvery = 10 * time.Second
	maxTexts   = 256
)

// bridge takes Raft's log to ours, level kept, but where it is about a peer or an empty log. Its Info is several lines per
// group and election, so it is passed on only where debug is.
type bridge struct {
	log  *slog.Logger
	name string
	args []any
	said *said // shared by all groups of a node
}

var _ hclog.Logger = bridge{}

func newBridge(log *slog.Logger) hclog.Logger { return bridge{log: log, said: &said{}} }

// said counts what was said lately.
type said struct {
	mu    sync.Mutex
	since time.Time
	lines map[string]int
}

// may tells whether to say it, and how often it was kept back before.
func (s *said) may(text string) (ok bool, kept int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); s.lines == nil || now.Sub(s.since) > burstEvery || len(s.lines) >= maxTexts {
		kept = s.lines[text] - burst
		s.since, s.lines = now, make(map[string]int)
	}
	s.lines[text]++
	return s.lines[text] <= burst, max(kept, 0)
}

func (b bridge) on(l slog.Level) bool {
	if l <= slog.LevelInfo && !b.log.Enabled(context.Background(), slog.LevelDebug) {
		return false
	}
	return b.log.Enabled(context.Background(), l)
}

func (b bridge) say(l slog.Level, text string, args []any) {
	if slices.ContainsFunc(args, ending) {
		l = slog.LevelDebug
	} else if newcomer(text, args) || text == unasked {
		l = slog.LevelDebug
	} else if aboutPeer(text) {
		l = min(l, slog.LevelWarn)
	}
	if !b.on(l) {
		return
	}
	if l > slog.LevelInfo {
		ok, kept := b.said.may(text)
		if !ok {
			return
		}
		if kept > 0 {
			args = append(args[:len(args):len(args)], "kept_back", kept)
		}
	}
	all := append(b.args[:len(b.args):len(b.args)], args...)
	for i, a := range all {
		if f, ok := a.(hclog.Format); ok && len(f) > 0 {
			all[i] = fmt.Sprintf(fmt.Sprint(f[0]), f[1:]...)
		}
	}
	b.log.Log(context.Background(), l, text, all...)
}

// ending tells whether it is about a connection or a log that we closed: Raft
// calls that an error.
func ending(arg any) bool {
	err, ok := arg.(error)
	return ok && (errors.Is(err, net.ErrClosed) || errors.Is(err, io.ErrClosedPipe) || errors.Is(err, raft.ErrTransportShutdown) || errors.Is(err, store.ErrClosed))
}

// aboutPeer knows what Raft calls an error and is none of this node: a peer is not
// there, or was faster. Raft handles it.
func aboutPeer(text string) bool {
	switch text {
	case "failed to heartbeat to", "failed to appendEntries to", "failed to make requestVote RPC", "peer has newer term, stopping replication", "failed to decode incoming command":
		return true
	}
	return false
}

// unasked is what Raft says of a replica that waits for its leader to add it, as each
// does when it is new.
const unasked = "no known peers, aborting election"

// newcomer tells whether it is about a replica that has no log yet, as each has
// none at first: its leader begins with an entry in the middle, and hears so.
func newcomer(text string, args []any) bool {
	key := map[string]string{"failed to get previous log": "last-index", "appendEntries rejected, sending older logs": "next"}[text]
	for i := 0; key != "" && i+1 < len(args); i += 2 {
		if n, ok := args[i+1].(uint64); ok && args[i] == key {
			return n <= 1
		}
	}
	return false
}

func level(l hclog.Level) slog.Level {
	switch l {
	case hclog.Trace, hclog.Debug:
		return slog.LevelDebug
	case hclog.Warn:
		return slog.LevelWarn
	case hclog.Error:
		return slog.LevelError
	}
	return slog.LevelInfo
}

func (b bridge) Log(l hclog.Level, text string, args ...any) { b.say(level(l), text, args) }
func (b bridge) Trace(text string, args ...any)              { b.say(slog.LevelDebug, text, args) }
func (b bridge) Debug(text string, args ...any)              { b.say(slog.LevelDebug, text, args) }
func (b bridge) Info(text string, args ...any)               { b.say(slog.LevelInfo, text, args) }
func (b bridge) Warn(text string, args ...any)               { b.say(slog.LevelWarn, text, args) }
func (b bridge) Error(text string, args ...any)              { b.say(slog.LevelError, text, args) }

func (b bridge) IsTrace() bool { return false }
func (b bridge) IsDebug() bool { return b.on(slog.LevelDebug) }
func (b bridge) IsInfo() bool  { return b.on(slog.LevelInfo) }
func (b bridge) IsWarn() bool  { return b.on(slog.LevelWarn) }
func (b bridge) IsError() bool { return b.on(slog.LevelError) }

func (b bridge) ImpliedArgs() []any { return b.args }
func (b bridge) Name() string       { return b.name }

func (b bridge) With(args ...any) hclog.Logger {
	b.args = append(b.args[:len(b.args):len(b.args)], args...)
	return b
}

func (b bridge) Named(name string) hclog.Logger {
	if b.name != "" {
		name = b.name + "." + name
	}
	return b.ResetNamed(name)
}

func (b bridge) ResetNamed(name string) hclog.Logger {
	b.name = name
	return b
}

func (b bridge) SetLevel(hclog.Level) {} // slog's handler has the level

func (b bridge) GetLevel() hclog.Level {
	if b.IsDebug() {
		return hclog.Debug
	}
	return hclog.Warn
}

func (b bridge) StandardLogger(*hclog.StandardLoggerOptions) *log.Logger {
	return slog.NewLogLogger(b.log.Handler(), slog.LevelInfo)
}

func (b bridge) StandardWriter(o *hclog.StandardLoggerOptions) io.Writer {
	return b.StandardLogger(o).Writer()
}
