package proxy_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/starling-lb/starling/proxy"
)

// mover is a Sessions whose sessions move as the shards' do: held, and moved only
// while no turn of theirs runs.
type mover struct {
	mu    sync.Mutex
	all   map[string]*lodger
	moves int
}

type lodger struct {
	home  proxy.Home
	turns int
	held  chan struct{} // closed when it may go on; nil: it is not held
}

// stay is a turn of a mover.
type stay struct {
	m    *mover
	l    *lodger
	home proxy.Home
}

func (m *mover) Turn(ctx context.Context, _ string, key []byte, _ time.Duration, propose func() string) (proxy.Turn, error) {
	m.mu.Lock()
	l := m.all[string(key)]
	if l == nil {
		l = &lodger{home: proxy.Home{Backend: fmt.Sprint("b", len(m.all)%3), Epoch: 1, Lookup: proxy.LookupHit}}
		m.all[string(key)] = l
	}
	for l.held != nil {
		held := l.held
		m.mu.Unlock()
		select {
		case <-held:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		m.mu.Lock()
	}
	defer m.mu.Unlock()
	l.turns++
	return &stay{m, l, l.home}, nil
}

func (s *stay) Home() proxy.Home { return s.home }

func (s *stay) Look() error {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	if s.l.held != nil || s.l.home != s.home {
		return errors.New("it moves")
	}
	return nil
}

func (s *stay) Rebind(_ context.Context, seen proxy.Home, _ string, _ func() string) (proxy.Home, error) {
	return seen, nil
}

func (s *stay) End() bool {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	s.l.turns--
	return false
}

// move holds a session and moves it, if none of its turns runs; it tries for a
// moment, as a leader does whose nodes answer that they are busy.
func (m *mover) move(key, to string) {
	m.mu.Lock()
	l := m.all[key]
	if l == nil || l.held != nil {
		m.mu.Unlock()
		return
	}
	l.held = make(chan struct{})
	for range 20 {
		if l.turns == 0 {
			l.home.Backend = to
			l.home.Epoch++
			m.moves++
			break
		}
		m.mu.Unlock()
		<-time.After(time.Millisecond)
		m.mu.Lock()
	}
	close(l.held)
	l.held = nil
	m.mu.Unlock()
}

// witness knows which backend works for a session, and for how long two do.
type witness struct {
	mu     sync.Mutex
	active map[string]map[string]int // streams, by session and backend
	since  map[string]time.Time      // by session: since two backends do
	worst  time.Duration
	served int
}

func (w *witness) count(key, name string, by int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.active[key] == nil {
		w.active[key] = map[string]int{}
	}
	if w.active[key][name] += by; w.active[key][name] == 0 {
		delete(w.active[key], name)
	}
	since, both := w.since[key]
	switch now := time.Now(); {
	case len(w.active[key]) > 1 && !both:
		w.since[key] = now
	case len(w.active[key]) < 2 && both:
		w.worst = max(w.worst, now.Sub(since))
		delete(w.since, key)
	}
	if by > 0 {
		w.served++
	}
}

// witnessed is a backend that takes a while for the body of each answer, and says
// when it begins and ends to work.
func witnessed(t testing.TB, name string, w *witness) *origin {
	return newOrigin(t, func(o *origin, c *net.TCPConn, in *bufio.Reader) {
		for r := o.next(in); r != nil; r = o.next(in) {
			key := r.Header.Get("X-Session-ID")
			w.count(key, name, 1)
			_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", len(name))
			gone := make(chan struct{})
			go func() { // a client that leaves ends the work
				defer close(gone)
				_, _ = in.Peek(1)
			}()
			select {
			case <-time.After(time.Duration(rand.IntN(4)) * time.Millisecond):
				w.count(key, name, -1) // before the last byte is out
				_, _ = io.WriteString(c, name)
				<-gone
			case <-gone:
				w.count(key, name, -1)
				return
			}
		}
	})
}

// While sessions move under their turns, no two backends work for one session;
// where clients leave in the middle of a turn, only for the moment in which a
// connection closes.
func TestNoTwoHomesAtOnce(t *testing.T) {
	t.Parallel()
	t.Run("whole turns", func(t *testing.T) { twoHomes(t, false, 0) })
	t.Run("clients leave", func(t *testing.T) { twoHomes(t, true, 500*time.Millisecond*raceFactor) })
}

func twoHomes(t *testing.T, leave bool, grace time.Duration) {
	const sessions, clients, each = 12, 12, 100
	w := &witness{active: map[string]map[string]int{}, since: map[string]time.Time{}}
	m := &mover{all: map[string]*lodger{}}
	g := newFrontFor(t, m, false, sticky("header:X-Session-ID"), witnessed(t, "b0", w).addr, witnessed(t, "b1", w).addr, witnessed(t, "b2", w).addr)
	over := make(chan struct{})
	var movers, talkers sync.WaitGroup
	movers.Go(func() {
		for rng := rand.New(rand.NewPCG(2, 3)); ; {
			select {
			case <-over:
				return
			case <-time.After(500 * time.Microsecond):
				m.move(fmt.Sprint("s", rng.IntN(sessions)), fmt.Sprint("b", rng.IntN(3)))
			}
		}
	})
	var failed atomic.Int64
	for i := range clients {
		rng := rand.New(rand.NewPCG(4, uint64(i)))
		talkers.Go(func() {
			for range each {
				if s := g.talk(fmt.Sprint("s", rng.IntN(sessions)), leave && rng.IntN(4) == 0); s != 200 {
					failed.Add(1)
				}
			}
		})
	}
	talkers.Wait()
	close(over)
	movers.Wait()
	g.idle()
	g.soon(patience, func() string {
		w.mu.Lock()
		defer w.mu.Unlock()
		if len(w.since) > 0 {
			return "two backends still work for one session"
		}
		return ""
	})
	if w.worst > grace {
		t.Errorf("two backends worked for one session for %v", w.worst)
	}
	if n := failed.Load(); n > 0 || m.moves < 20 || w.served < clients*each/2 {
		t.Errorf("%d turns failed, %d were served, %d moves", n, w.served, m.moves)
	}
	for key, l := range m.all {
		if l.turns != 0 {
			t.Errorf("%d turns of %s run on", l.turns, key)
		}
	}
}

// talk takes a turn, or leaves in the middle of it, which counts as done.
func (g *front) talk(key string, leaves bool) int {
	c, err := net.Dial("tcp", g.Addrs()[0])
	if err != nil {
		return 0
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(patience))
	_, _ = fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: x\r\nX-Session-ID: %s\r\n\r\n", key)
	if leaves {
		_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
		_, _ = c.Read(make([]byte, 10))
		return 200
	}
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return 0
	}
	_, _ = io.Copy(io.Discard, r.Body)
	return r.StatusCode
}
