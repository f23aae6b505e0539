package proxy_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/starling-lb/starling/proxy"
)

// book is a Sessions that binds in memory. Its test looks at what it was asked,
// and has a word in the answers.
type book struct {
	t testing.TB

	mu      sync.Mutex
	homes   map[string]proxy.Home
	epoch   uint32
	turns   []string        // keys, in the order in which turns were begun
	running map[string]int  // turns, by key
	reasons []string        // of Rebind
	waited  []time.Duration // what each turn was told

	fails   error         // what Turn and Rebind fail with; nil: they do not
	waits   chan struct{} // Turn waits until it is closed; nil: it does not
	looks   []error       // what Look says, one after the other; then nil
	between func()        // runs in Turn, between the proposal and the binding
	stays   bool          // Rebind says that the home stands
	stale   bool          // what End says
	lag     time.Duration // that a turn takes
}

func newBook(t testing.TB) *book {
	b := &book{t: t, homes: map[string]proxy.Home{}, running: map[string]int{}}
	t.Cleanup(func() { b.rests(patience) }) // once the server, which is made after, has stopped
	return b
}

// have changes what the book answers. The race detector does not see that a
// request comes after, since the sockets' reads are hidden from it.
func (b *book) have(change func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change()
}

// entry is a turn of a book.
type entry struct {
	*book
	key   string
	home  proxy.Home
	ended bool
}

func (b *book) Turn(ctx context.Context, _ string, key []byte, waited time.Duration, propose func() string) (proxy.Turn, error) {
	b.mu.Lock()
	name := string(key)
	b.turns = append(b.turns, name)
	b.waited = append(b.waited, waited)
	b.running[name]++
	home, known := b.homes[name]
	fails, waits, between, lag := b.fails, b.waits, b.between, b.lag
	b.mu.Unlock()
	e := &entry{book: b, key: name, home: home}
	if lag > 0 {
		<-time.After(lag)
	}
	if waits != nil {
		select {
		case <-waits:
		case <-ctx.Done():
			fails = ctx.Err()
		}
	}
	if fails != nil {
		e.End()
		return nil, fails
	}
	e.home.Lookup = proxy.LookupHit
	if !known {
		id := propose()
		if between != nil {
			between()
		}
		e.home = b.bind(name, 0, id, proxy.LookupNew)
	}
	return e, nil
}

// bind has a session live at a backend, where it still has the epoch that was
// seen.
func (b *book) bind(key string, seen uint32, id string, how proxy.Lookup) proxy.Home {
	b.mu.Lock()
	defer b.mu.Unlock()
	if home := b.homes[key]; home.Epoch != seen || id == "" {
		home.Lookup = proxy.LookupHit
		return home
	}
	b.epoch++
	b.homes[key] = proxy.Home{Backend: id, Epoch: b.epoch}
	return proxy.Home{Backend: id, Epoch: b.epoch, Lookup: how}
}

// place has a session live somewhere, whatever it did before.
func (b *book) place(key, id string) {
	b.mu.Lock()
	seen := b.homes[key].Epoch
	b.mu.Unlock()
	b.bind(key, seen, id, "")
}

func (e *entry) Home() proxy.Home { return e.home }

func (e *entry) Look() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.looks) == 0 {
		return nil
	}
	err := e.looks[0]
	e.looks = e.looks[1:]
	return err
}

func (e *entry) Rebind(_ context.Context, seen proxy.Home, reason string, propose func() string) (proxy.Home, error) {
	e.mu.Lock()
	e.reasons = append(e.reasons, reason)
	fails, stays := e.fails, e.stays
	e.mu.Unlock()
	if fails != nil || stays {
		return seen, fails
	}
	return e.bind(e.key, seen.Epoch, propose(), proxy.LookupRepin), nil
}

func (e *entry) End() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ended {
		e.t.Errorf("a turn of %q ended twice", e.key)
	}
	e.ended = true
	if e.running[e.key]--; e.running[e.key] == 0 {
		delete(e.running, e.key)
	}
	return e.stale
}

// rests waits until no turn runs.
func (b *book) rests(within time.Duration) {
	b.t.Helper()
	for by := time.Now().Add(within); ; <-time.After(time.Millisecond) {
		b.mu.Lock()
		running := fmt.Sprint(b.running)
		n := len(b.running)
		b.mu.Unlock()
		if n == 0 {
			return
		}
		if time.Now().After(by) {
			b.t.Errorf("turns run on: %s", running)
			return
		}
	}
}

// asked are the keys of the turns so far, and what rebinds were for.
func (b *book) asked() (turns, reasons []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]string(nil), b.turns...), append([]string(nil), b.reasons...)
}

func (b *book) home(key string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.homes[key].Backend
}

// sticky gives a pool sessions by these keys.
func sticky(keys ...string) func(*proxy.PoolConfig) {
	return func(p *proxy.PoolConfig) {
		s := proxy.DefaultSession()
		if len(keys) > 0 {
			s.Key = keys
		}
		p.Sticky, p.Health.Enabled = &s, false
	}
}

// naming is a backend that answers with its name, and tells which heads came.
func naming(t testing.TB, name string, heads chan<- string) *origin {
	return newOrigin(t, func(o *origin, c *net.TCPConn, in *bufio.Reader) {
		for {
			var head bytes.Buffer
			r, err := http.ReadRequest(bufio.NewReader(io.TeeReader(in, &head)))
			if err != nil {
				return
			}
			o.heads.Add(1)
			if _, err := io.Copy(io.Discard, r.Body); err != nil {
				return
			}
			if heads != nil {
				heads <- head.String()
			}
			reply(c, name)
		}
	})
}

// of sends a request of a session and hears the answer.
func (g *front) of(key string) said {
	c := g.dial()
	defer func() { _ = c.Close() }()
	fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: x\r\nX-Session-ID: %s\r\n\r\n", key)
	return hear(c, "GET")
}

// lookups waits until so many were counted, since a count follows its answer.
func (g *front) lookups(want map[proxy.Lookup]float64) {
	g.t.Helper()
	g.soon(patience, func() string {
		for _, l := range proxy.Lookups() {
			if got := g.metric("sticky_lookups_total", "llm", string(l)); got != want[l] {
				return fmt.Sprintf("%v lookups are %s, want %v", got, l, want[l])
			}
		}
		return ""
	})
}

// idle waits until no stream runs, and nothing is counted at any backend.
func (g *front) idle() {
	g.t.Helper()
	g.counts(patience, 0, 0)
	g.soon(patience, func() string {
		for _, b := range g.Pools()[0].Backends() {
			if n := b.InFlight(); n != 0 {
				return fmt.Sprintf("%d streams at %s", n, b.ID)
			}
		}
		return ""
	})
}
