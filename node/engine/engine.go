// Package engine asks the programs behind backends how much they have to do, by
// their pages for Prometheus, so that caps need no configuration. It promises to
// ask no backend more than once a second and to give up politely on those that
// have no such page. It must not know what is done with the answers.
package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/starling-lb/starling/proxy/backend"
)

// How often backends are asked, and for how long.
const (
	every    = time.Second
	slowest  = time.Minute     // between two questions to one that does not answer as an engine
	patience = 2 * time.Second // with one answer
	atOnce   = 8               // questions under way in one pool
)

// Options are a reader's seams to the rest.
type Options struct {
	Logger   *slog.Logger
	Kind     Kind                                       // "": whichever it is
	Client   *http.Client                               // see ClientOf
	Backends func() []*backend.Backend                  // the pool's, now
	Tell     func(*backend.Backend, Reading, time.Time) // what one said
	Lost     func(b *backend.Backend, why error)        // it said nothing usable, after it had; nil: nobody asks
}

// Reader reads the engines of one pool.
type Reader struct {
	opt    Options
	turns  chan struct{}
	cancel context.CancelFunc
	tasks  sync.WaitGroup

	mu    sync.Mutex // taken before a habit's
	asked map[*backend.Backend]*habit
}

// habit is how a backend answered so far.
type habit struct {
	mu     sync.Mutex // guards the rest against the goroutine that asks
	next   time.Time
	wait   time.Duration
	asking bool
	known  bool // it answered as an engine the last time
	last   Reading
	said   bool // that it does not was logged
}

// New makes a reader.
func New(opt Options) *Reader {
	return &Reader{opt: opt, asked: map[*backend.Backend]*habit{}, turns: make(chan struct{}, atOnce)}
}

// Start begins to ask.
func (r *Reader) Start(context.Context) error {
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	r.tasks.Go(func() { r.readLoop(ctx) })
	return nil
}

// Stop ends the asking.
func (r *Reader) Stop() {
	if r.cancel != nil {
		r.cancel()
	}
	r.tasks.Wait()
	r.opt.Client.CloseIdleConnections()
}

// readLoop asks each backend when it is due.
func (r *Reader) readLoop(ctx context.Context) {
	tick := time.NewTicker(every / 10)
	defer tick.Stop()
	for {
		r.askAll(ctx, time.Now())
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// askAll asks those that are due, and forgets those that have left.
func (r *Reader) askAll(ctx context.Context, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	there := map[*backend.Backend]*habit{}
	for _, b := range r.opt.Backends() {
		h := r.asked[b]
		if h == nil {
			h = &habit{wait: every, next: now}
		}
		there[b] = h
		if h.due(now) {
			r.tasks.Go(func() { r.ask(ctx, b, h) })
		}
	}
	r.asked = there
}

// Said is what the backend's engine said last; ok is false where it says
// nothing, or no more.
func (r *Reader) Said(b *backend.Backend) (last Reading, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.asked[b]
	if h == nil {
		return Reading{}, false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last, h.known
}

// due tells whether it is time, and takes the turn.
func (h *habit) due(now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.asking || now.Before(h.next) {
		return false
	}
	h.asking = true
	return true
}

// ask puts one question.
func (r *Reader) ask(ctx context.Context, b *backend.Backend, h *habit) {
	var reading Reading
	var err error
	select {
	case r.turns <- struct{}{}:
		reading, err = r.read(ctx, b)
		<-r.turns
	case <-ctx.Done():
		err = ctx.Err()
	}
	now := time.Now()
	if err == nil {
		r.opt.Tell(b, reading, now)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.asking = false
	switch {
	case ctx.Err() != nil:
	case err == nil:
		if !h.known {
			r.opt.Logger.Info("the backend's engine tells its load", "backend", b.ID, "engine", reading.Engine)
		}
		h.known, h.last, h.said, h.wait = true, reading, false, every
	default:
		if h.known && r.opt.Lost != nil {
			r.opt.Lost(b, err)
		}
		if h.known || r.opt.Kind != "" && !h.said {
			r.opt.Logger.Warn("the backend's engine does not tell its load", "backend", b.ID, "err", err)
		}
		h.known, h.said, h.wait = false, true, min(2*h.wait, slowest)
	}
	h.next = now.Add(time.Duration(float64(h.wait) * (0.9 + 0.2*rand.Float64())))
}

// asking is the key of the backend that a question goes to, in its context.
type asking struct{}

// ClientOf makes a client that connects to a backend as connect does, TLS
// included. It keeps one connection to each.
func ClientOf(connect func(context.Context, *backend.Backend) (net.Conn, error)) *http.Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		b, ok := ctx.Value(asking{}).(*backend.Backend)
		if !ok {
			panic("BUG: a question that goes to no backend")
		}
		return connect(ctx, b)
	}
	return &http.Client{
		Transport:     &http.Transport{DialContext: dial, DialTLSContext: dial, MaxIdleConnsPerHost: 1, IdleConnTimeout: 2 * slowest},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// read gets one page.
func (r *Reader) read(ctx context.Context, b *backend.Backend) (Reading, error) {
	ctx, cancel := context.WithTimeout(context.WithValue(ctx, asking{}, b), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(b.URL, "/")+"/metrics", nil)
	if err != nil {
		return Reading{}, err
	}
	resp, err := r.opt.Client.Do(req)
	if err != nil {
		return Reading{}, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return Reading{}, fmt.Errorf("GET /metrics: %s", resp.Status)
	}
	reading, err := Parse(resp.Body, r.opt.Kind)
	if errors.Is(err, ErrNoEngine) && r.opt.Kind != "" {
		err = fmt.Errorf("GET /metrics: no page of %s", r.opt.Kind)
	}
	return reading, err
}
