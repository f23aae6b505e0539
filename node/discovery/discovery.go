// Package discovery finds a pool's backends in DNS and in files, and tells of
// each change as one whole list. A source that fails says so once and keeps its
// last good answer. It must not know what a backend's health is, or whether
// anybody uses it.
package discovery

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/starling-lb/starling/proxy/backend"
)

// MaxBackends bounds what all sources may bring to a pool. What is over it is
// left out, in the order of the ids, and said so.
const MaxBackends = 4096

// Options are a finder's seams to the rest.
type Options struct {
	Logger *slog.Logger
	Tell   func([]backend.Config) // each new list, sorted by id; one at a time, and it may block
	Lookup Lookup                 // nil: the servers of /etc/resolv.conf
	Hosts  Hosts                  // for what Lookup does not know; nil: the system's
}

// Finder watches the sources of one pool.
type Finder struct {
	cfg  backend.SourceConfig
	opt  Options
	from []source
	said map[uint16][]netip.Addr // the last answer of each kind of address; of the loop that asks for them

	mu    sync.Mutex // guards what follows
	found map[string][]backend.Config
	told  []backend.Config

	cancel context.CancelFunc
	tasks  sync.WaitGroup
}

// source is one place where backends are found.
type source struct {
	name string // for people
	// look returns what there is, and after how long to look again. errSame
	// says that nothing changed.
	look func(context.Context) ([]backend.Config, time.Duration, error)
}

// errSame says that a source has what it had.
var errSame = errors.New("unchanged")

// lookLimit bounds one look at a source.
const lookLimit = 10 * time.Second

// New makes a finder of a valid configuration.
func New(cfg backend.SourceConfig, opt Options) *Finder {
	if opt.Lookup == nil && (cfg.DNS != "" || cfg.SRV != "") {
		opt.Lookup = systemDNS()
	}
	if opt.Hosts == nil {
		opt.Hosts = systemHosts
	}
	f := &Finder{cfg: cfg, opt: opt, found: map[string][]backend.Config{}, said: map[uint16][]netip.Addr{}}
	f.from = f.sources()
	return f
}

// Start looks once at every source, so that a node that is ready has backends
// if there are any, and goes on looking. A source that fails does not stop it.
func (f *Finder) Start(ctx context.Context) error {
	run, cancel := context.WithCancel(context.Background())
	f.cancel = cancel
	var first sync.WaitGroup
	for _, s := range f.from {
		first.Add(1)
		f.tasks.Go(func() { f.watchLoop(run, s, sync.OnceFunc(first.Done)) })
	}
	done := make(chan struct{})
	go func() { first.Wait(); close(done) }() // ends: every loop looks once, bounded by lookLimit
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		f.Stop()
		<-done
		return ctx.Err()
	}
}

// Stop ends the looking.
func (f *Finder) Stop() {
	if f.cancel != nil {
		f.cancel()
	}
	f.tasks.Wait()
}

func (f *Finder) sources() []source {
	var all []source
	if t, err := backend.ParseTarget(f.cfg.DNS); err == nil {
		all = append(all, source{"dns " + f.cfg.DNS, func(ctx context.Context) ([]backend.Config, time.Duration, error) { return f.addresses(ctx, t) }})
	}
	if t, err := backend.ParseService(f.cfg.SRV); err == nil {
		all = append(all, source{"srv " + f.cfg.SRV, func(ctx context.Context) ([]backend.Config, time.Duration, error) { return f.services(ctx, t) }})
	}
	if f.cfg.File != "" {
		w := &fileWatch{path: f.cfg.File}
		all = append(all, source{"file " + f.cfg.File, w.look})
	}
	return all
}

// watchLoop looks at one source until ctx ends.
func (f *Finder) watchLoop(ctx context.Context, s source, looked func()) {
	defer looked()
	failing := false
	for {
		ask, cancel := context.WithTimeout(ctx, lookLimit)
		found, wait, err := s.look(ask)
		cancel()
		if ctx.Err() != nil {
			return
		}
		switch {
		case errors.Is(err, errSame):
		case err != nil && failing:
		case err != nil:
			failing = true
			f.opt.Logger.Warn("backends cannot be discovered; those found before, if any, are kept", "source", s.name, "err", err)
		default:
			if failing {
				f.opt.Logger.Info("backends can be discovered again", "source", s.name)
			}
			failing = false
			f.publish(s.name, found)
		}
		looked()
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// publish tells the sum of all sources, if it changed.
func (f *Finder) publish(name string, found []backend.Config) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.found[name] = found
	sum := map[string]backend.Config{}
	for _, s := range f.from { // in their order: the first that names an id counts
		for _, e := range f.found[s.name] {
			if _, known := sum[e.ID]; !known {
				sum[e.ID] = e
			}
		}
	}
	next := make([]backend.Config, 0, len(sum))
	for _, e := range sum {
		next = append(next, e)
	}
	slices.SortFunc(next, func(a, b backend.Config) int { return cmp.Compare(a.ID, b.ID) })
	if len(next) > MaxBackends {
		f.opt.Logger.Warn("too many backends were discovered; those with the last ids are left out", "found", len(next), "limit", MaxBackends)
		next = next[:MaxBackends]
	}
	if f.told == nil || !slices.Equal(next, f.told) {
		f.told = next
		f.opt.Tell(slices.Clone(next))
	}
}
