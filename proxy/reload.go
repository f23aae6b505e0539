package proxy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"syscall"
	"time"

	"github.com/starling-lb/starling/proxy/wire"
)

// ErrStopped says that what has ended is not changed any more.
var ErrStopped = errors.New("the server has stopped")

// layout is what a reload replaces, as one step. It never changes.
type layout struct {
	pools     map[string]*pool
	past      []*pool // that are configured no more, whose streams have not ended, or whose series are still shown
	listeners []*listener
}

// all are the pools that may have streams; their names are unique.
func (y *layout) all() []*pool {
	return append(slices.Collect(maps.Values(y.pools)), y.past...)
}

// known is the pool of that name, also a past one; nil where there is none.
func (y *layout) known(name string) *pool {
	if p := y.pools[name]; p != nil {
		return p
	}
	for _, p := range y.past {
		if p.Name == name {
			return p
		}
	}
	return nil
}

func (y *layout) gates() (all []*gate) {
	for _, l := range y.listeners {
		all = append(all, l.gate.Load())
	}
	return all
}

// hang gives the listeners their gates.
func (y *layout) hang(gates []*gate) {
	for i, l := range y.listeners {
		l.gate.Store(gates[i])
	}
}

// bound has the kernel bound what clients may keep it busy with. What a node notices
// itself comes first: it waits write_idle.
func (y *layout) bound() {
	for _, l := range y.listeners {
		wire.Bound(l.socket, 2*l.gate.Load().timeouts.WriteIdle)
	}
}

// Reload has another configuration in force, while streams run; or it fails, and
// nothing has changed. Pools are the same by their names, listeners by their
// addresses, backends as Update has it: what is the same keeps its streams, counts,
// connections and state. A running stream ends by the settings that it began with.
// A pool that is no longer there has its streams end where they are, and a listener
// closes its socket, and each of its connections after its answer. Where streams
// are recorded is not changed.
func (s *Server) Reload(ctx context.Context, cfg Config) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	if s.closed {
		return ErrStopped
	}
	was := s.now.Load()
	next, gates, err := s.draw(cfg, was)
	if err != nil {
		return err
	}
	fresh := slices.DeleteFunc(slices.Clone(next.listeners), func(l *listener) bool { return slices.Contains(was.listeners, l) })
	if err := s.listen(ctx, next.listeners, gates); err != nil {
		return err
	}
	for name, p := range next.pools { // who is to get streams is there first
		if err := p.Update(cfg.Pools[name].Backends, p.cfg.rules(), time.Now()); err != nil {
			panic("BUG: valid backends are refused: " + err.Error())
		}
	}
	next.hang(gates)
	s.now.Store(next)
	next.bound()
	s.accept(fresh)
	for _, l := range was.listeners {
		if !slices.Contains(next.listeners, l) {
			s.shut(l)
		}
	}
	return nil
}

// draw makes the layout for a configuration, of what was there before as far as it
// is the same, and the gates of its listeners. Nothing of it is in force yet.
func (s *Server) draw(cfg Config, was *layout) (next *layout, gates []*gate, err error) {
	next = &layout{pools: map[string]*pool{}}
	for name, c := range cfg.Pools {
		if next.pools[name], err = s.newPool(name, c, was.known(name)); err != nil {
			return nil, nil, err
		}
	}
	for _, p := range was.all() {
		if next.pools[p.Name] != nil {
			continue
		}
		if was.pools[p.Name] != nil {
			p.gone = time.Now()
		}
		next.past = append(next.past, p)
	}
	left := slices.Clone(was.listeners)
	for _, c := range cfg.Listeners {
		l, at := &listener{named: c.Address}, slices.IndexFunc(left, func(l *listener) bool { return l.named == c.Address })
		if at >= 0 {
			l = left[at]
			left = slices.Delete(left, at, at+1) // several may have port 0
		}
		d, err := s.newGate(c, cfg.Timeouts, next.pools, l.gate.Load())
		if err != nil {
			return nil, nil, err
		}
		next.listeners, gates = append(next.listeners, l), append(gates, d)
	}
	return next, gates, nil
}

// newDoor makes a gate; was is the one before, nil for none.
func (s *Server) newGate(cfg ListenerConfig, timeouts ClientTimeouts, pools map[string]*pool, was *gate) (*gate, error) {
	d, err := newGate(cfg, timeouts, pools)
	if err != nil {
		return nil, err
	}
	if was == nil || was.cfg.TLS != cfg.TLS {
		d.keys, err = listenerKeys(cfg)
	} else {
		d.keys = was.keys
	}
	if err == nil && was != nil && (was.keys == nil) != (d.keys == nil) {
		err = fmt.Errorf("listener %s: its socket cannot change between TLS and none; stop the node, or use another port", cfg.Address)
	}
	return d, err
}

// listen opens the sockets of those listeners that have none; where one fails, it
// has opened none.
func (s *Server) listen(ctx context.Context, all []*listener, gates []*gate) (err error) {
	var opened []*listener
	for i, l := range all {
		if l.socket != nil {
			continue
		}
		if l.socket, err = s.opt.Listen(ctx, "tcp", l.named); err != nil {
			closeSockets(opened)
			return fmt.Errorf("listener %s: %w%s", l.named, err, advice(err))
		}
		opened = append(opened, l)
		if gates[i].keys == nil {
			l.socket = wire.Quick(l.socket)
		}
	}
	return nil
}

// advice is what to do about a socket that cannot be opened.
func advice(err error) string {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return "; end what listens there (ss -ltnp names it), or write another address; where it is this node's own other listener, take that out by a reload first"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return "; this machine does not have that address: write one that it has, or 0.0.0.0 for all"
	case errors.Is(err, syscall.EACCES):
		return "; ports below 1024 want CAP_NET_BIND_SERVICE: give it to the process, or write a higher port"
	}
	return ""
}

func closeSockets(all []*listener) {
	for _, l := range all {
		if l.socket != nil {
			_ = l.socket.Close()
		}
	}
}

func (s *Server) accept(fresh []*listener) {
	for _, l := range fresh {
		s.doors.begin(l)
		s.accepting.Add(1)
		s.tasks.Go(func() {
			defer s.accepting.Done()
			s.acceptLoop(l)
		})
	}
}

// shut has a listener take no more connections, and those that it has end as they
// fall idle.
func (s *Server) shut(l *listener) {
	l.shut.Store(true)
	_ = l.socket.Close()
	s.each(func(c *client) {
		if c.listener == l {
			c.hangUp()
		}
	})
}

// lastCalls is how long a pool that is gone waits for requests that found it just
// before.
const lastCalls = 10 * time.Second

// retire lets go of pools that are gone and whose streams have ended, a while after
// their backends' series.
func (s *Server) retire(now time.Time) {
	s.changing.Lock()
	defer s.changing.Unlock()
	was := s.now.Load()
	if len(was.past) == 0 {
		return
	}
	next := *was
	next.past = slices.DeleteFunc(slices.Clone(was.past), func(p *pool) bool { return s.isOver(p, now) })
	s.now.Store(&next)
}

// isOver tells whether nothing is left of a pool that is gone; changing is held.
func (s *Server) isOver(p *pool, now time.Time) bool {
	if len(p.Backends()) > 0 {
		if now.Sub(p.gone) < lastCalls || p.busy() {
			return false
		}
		_ = p.Update(nil, p.cfg.rules(), now) // no backend can be invalid
	}
	if p.left.some() {
		return false
	}
	s.metrics.forgetPool(p.Name)
	return true
}

// busy tells whether a stream is at the pool's backends, or on its way to one.
func (p *pool) busy() bool {
	streams := p.Waiting() + p.between.Load()
	for _, b := range p.Backends() {
		streams += b.InFlight()
	}
	return streams > 0
}
