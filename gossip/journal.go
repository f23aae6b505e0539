package gossip

import (
	"context"
	"log"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"
)

// journal logs what was refused, each peer and cause once in a while: a flood
// must not become one of lines.
type journal struct {
	log   *slog.Logger
	count *counters

	mu    sync.Mutex
	lines map[string]*line
}

type line struct {
	at   time.Time
	more int // since
}

const (
	quiet    = 10 * time.Second // between two lines of one peer and cause
	maxLines = 64               // peers and causes that are told apart; what is beyond is only counted
)

func (j *journal) refused(peer string, err error) {
	c := causeOf(err)
	j.count.refused[c.index()].Add(1)
	host, _, splitErr := net.SplitHostPort(peer)
	if splitErr != nil {
		host = peer
	}
	if more, ok := j.turn(host+" "+c.name(), time.Now()); ok {
		j.log.Warn("refused", "peer", peer, "cause", c.name(), "err", err, "more", more)
	}
}

// turn tells whether a line may be written, and how many were not.
func (j *journal) turn(key string, now time.Time) (more int, ok bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	l := j.lines[key]
	if l == nil {
		if !j.makeRoom(now) {
			return 0, false
		}
		j.lines[key] = &line{at: now}
		return 0, true
	}
	if now.Sub(l.at) < quiet {
		l.more++
		return 0, false
	}
	more = l.more
	*l = line{at: now}
	return more, true
}

// makeRoom is called with the lock held.
func (j *journal) makeRoom(now time.Time) bool {
	if j.lines == nil {
		j.lines = map[string]*line{}
	}
	if len(j.lines) < maxLines {
		return true
	}
	for key, l := range j.lines {
		if now.Sub(l.at) >= quiet {
			delete(j.lines, key)
		}
	}
	return len(j.lines) < maxLines
}

// bridge writes memberlist's lines into our log, with their levels.
type bridge struct{ log *slog.Logger }

func newBridge(l *slog.Logger) *log.Logger { return log.New(bridge{l}, "", 0) }

func (b bridge) Write(p []byte) (int, error) {
	text := strings.TrimSpace(string(p))
	level := slog.LevelInfo
	if tag, rest, ok := strings.Cut(text, "] "); ok && strings.HasPrefix(tag, "[") {
		text = strings.TrimPrefix(rest, "memberlist: ")
		switch tag[1:] {
		case "DEBUG":
			level = slog.LevelDebug
		case "WARN":
			level = slog.LevelWarn
		case "ERR", "ERROR":
			level = slog.LevelWarn // nothing that memberlist meets needs a person at once
		}
	}
	for _, known := range []string{"ignoring alive message", "Conflicting address", "Failed to send", "Was able to connect"} {
		if strings.HasPrefix(text, known) {
			level = slog.LevelDebug // refusals are in the log already, with their reasons; the rest is counted
		}
	}
	b.log.Log(context.Background(), level, text, "from", "memberlist")
	return len(p), nil
}
