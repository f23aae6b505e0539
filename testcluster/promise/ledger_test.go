package promise_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/starling-lb/starling/proxy/backend"
)

// ledger is what the backends saw: the streams of each session.
type ledger struct {
	mu      sync.Mutex // guards what follows
	streams map[string][]*span
	total   int
	release chan struct{} // closed: streams end, but for those that want to be whole
	last    chan struct{} // closed: these end, too
}

// span is one stream at a backend.
type span struct {
	backend, id string // id is the request's, as its node's log has it
	node        int    // that the client asked
	epoch       int
	began, end  time.Time // end is zero as long as it runs
}

// epochHeader tells backends the epoch; no client writes it.
const epochHeader = "X-Epoch"

func newLedger() *ledger {
	return &ledger{streams: make(map[string][]*span), release: make(chan struct{}), last: make(chan struct{})}
}

// backends starts some, b1 and so on.
func (l *ledger) backends(t *testing.T, n int) (all []backend.Config) {
	for i := range n {
		all = append(all, l.backend(t, fmt.Sprint("b", i+1)))
	}
	return all
}

func (l *ledger) backend(t *testing.T, id string) backend.Config {
	s := httptest.NewServer(l.serve(id))
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	b := backend.DefaultConfig()
	b.ID, b.URL = id, s.URL
	return b
}

// serve is a backend that streams for as long as the request says.
func (l *ledger) serve(id string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s := l.begin(id, r)
		defer l.end(s)
		length, err := time.ParseDuration(r.URL.Query().Get("for"))
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		over, released := time.NewTimer(length), l.release
		defer over.Stop()
		if r.URL.Query().Get("whole") != "" {
			released = l.last
		}
		if length > time.Second {
			tick.Reset(250 * time.Millisecond)
		}
		for {
			if _, err := io.WriteString(w, "x"); err != nil {
				return
			}
			w.(http.Flusher).Flush()
			select {
			case <-tick.C:
			case <-over.C:
				return
			case <-released:
				return
			case <-r.Context().Done():
				return
			}
		}
	}
}

func (l *ledger) begin(id string, r *http.Request) *span {
	epoch, _ := strconv.Atoi(r.Header.Get(epochHeader)) // none: nobody has agreed yet
	node, _ := strconv.Atoi(r.URL.Query().Get("node"))
	s := &span{backend: id, id: r.Header.Get("X-Request-ID"), node: node, epoch: epoch, began: time.Now()}
	session := r.Header.Get("X-Session-ID")
	l.mu.Lock()
	defer l.mu.Unlock()
	l.streams[session] = append(l.streams[session], s)
	l.total++
	return s
}

func (l *ledger) end(s *span) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s.end = time.Now()
}

// running says which streams still run.
func (l *ledger) running() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	n, one := 0, ""
	for session, streams := range l.streams {
		for _, s := range streams {
			if s.end.IsZero() {
				n, one = n+1, session
			}
		}
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%d streams still run, one of %s", n, one)
}

// closes is for how long a backend may not have noticed that a stream is closed.
const closes = 500 * time.Millisecond

// overlap is two streams of a session that ran at two backends at once.
type overlap struct {
	session       string
	first, second *span
}

func (o overlap) String() string {
	return fmt.Sprintf("%s: on %s in epoch %d for %v, and from %v after its begin on %s in epoch %d for %v", o.session,
		o.first.backend, o.first.epoch, o.first.end.Sub(o.first.began).Round(time.Millisecond), o.second.began.Sub(o.first.began).Round(time.Millisecond),
		o.second.backend, o.second.epoch, o.second.end.Sub(o.second.began).Round(time.Millisecond))
}

// overlaps are all of them; moved is how many backends sessions were at, beyond one
// each.
func (l *ledger) overlaps() (all []overlap, moved int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for session, streams := range l.streams {
		homes := make(map[string]bool)
		for i, a := range streams {
			homes[a.backend] = true
			for _, b := range streams[i+1:] {
				if a.backend != b.backend && b.began.Before(a.end.Add(-closes)) && a.began.Before(b.end.Add(-closes)) {
					all = append(all, overlap{session, a, b})
				}
			}
		}
		moved += len(homes) - 1
	}
	return all, moved
}

// until returns a context that ends after a time, once there were so many streams and
// some session was seen at a second backend; at the latest when the test must.
func (l *ledger) until(t *testing.T, least time.Duration, streams int) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), least+2*time.Minute)
	t.Cleanup(cancel)
	go func() {
		pauseFor(ctx, least)
		for ctx.Err() == nil {
			_, moved := l.overlaps()
			l.mu.Lock()
			total := l.total
			l.mu.Unlock()
			if moved > 0 && total >= streams {
				cancel()
			}
			pauseFor(ctx, 200*time.Millisecond)
		}
	}()
	return ctx
}

// line is what a node's log says of a stream.
type line struct {
	ID     string `json:"request_id"`
	Lookup string `json:"lookup"`
	Stale  bool   `json:"session_stale"`
	Epoch  int    `json:"session_epoch"`
}

// logged reads the access logs of nodes that have stopped, or written all, by
// request.
func logged(t *testing.T, paths []string) map[string]line {
	all := make(map[string]line)
	for _, path := range paths {
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		in := bufio.NewScanner(f)
		for in.Scan() {
			var one line
			if json.Unmarshal(in.Bytes(), &one) == nil { // a node that was killed may have left half a line
				all[one.ID] = one
			}
		}
		f.Close()
	}
	return all
}

// judge matches every overlap with what the nodes said of its streams: one of the two
// has to be stale, or its node to have been killed in the middle of it. Under strict
// the node of such a stream has to have been away, too.
func (l *ledger) judge(t *testing.T, lines map[string]line, strict bool, away func(*span) bool) (matched int) {
	t.Helper()
	all, _ := l.overlaps()
	for _, o := range all {
		told := false
		for _, s := range []*span{o.first, o.second} {
			said, known := lines[s.id]
			told = told || said.Stale && (!strict || away(s)) || !known && away(s)
		}
		if matched++; !told {
			t.Errorf("two at once, and nobody counted it: %v; the log says %+v and %+v", o, lines[o.first.id], lines[o.second.id])
		}
	}
	return matched
}
