package proxy

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/starling-lb/starling/proxy/backend"
	"github.com/starling-lb/starling/proxy/wire"
)

// Resolver finds the addresses of a host name.
type Resolver func(ctx context.Context, host string) ([]netip.Addr, error)

func systemResolver(ctx context.Context, host string) ([]netip.Addr, error) {
	return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
}

const (
	resolveEvery = 30 * time.Second // between two questions where a backend's name leads
	resolveLimit = 5 * time.Second  // for an answer
)

// where is what is known of the place of a backend that has a name.
type where struct {
	known atomic.Pointer[[]netip.Addr] // where the name led last; nil: nobody has asked
	lost  atomic.Bool                  // it leads nowhere now
}

// dial opens a connection to the backend that carries streams.
func (p *pool) dial(ctx context.Context, s *Server, b *backend.Backend) (*wire.Link, error) {
	nc, err := p.connect(ctx, s, b)
	if err != nil {
		return nil, err
	}
	p.of(b).used.Add(1)
	return wire.NewLink(nc, &s.stock, s.watcher), nil
}

// Connect opens a connection to a backend in the way in which those of streams
// are opened, TLS and all, for those who ask it something else. It is theirs.
func (s *Server) Connect(ctx context.Context, pool string, b *backend.Backend) (net.Conn, error) {
	p, ok := s.now.Load().pools[pool]
	if !ok {
		return nil, fmt.Errorf("there is no pool %q any more", pool)
	}
	return p.connect(ctx, s, b)
}

func (p *pool) connect(ctx context.Context, s *Server, b *backend.Backend) (net.Conn, error) {
	if p.cfg.Timeouts.Connect > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, p.cfg.Timeouts.Connect)
		defer cancel()
	}
	nc, err := p.reach(ctx, s, b)
	if err == nil && b.Addr.TLS {
		nc, err = p.secure(ctx, nc, b)
	}
	return nc, err
}

// reach connects to the backend, whose name is resolved anew each time; while
// that fails, at the addresses that were last known.
func (p *pool) reach(ctx context.Context, s *Server, b *backend.Backend) (net.Conn, error) {
	u := p.of(b)
	known := u.known.Load()
	if known == nil || !u.lost.Load() {
		nc, err := s.opt.Dial(ctx, "tcp", b.Addr.Dial)
		var unresolved *net.DNSError
		if known == nil || !errors.As(err, &unresolved) || ctx.Err() != nil {
			return nc, err
		}
	}
	_, port, _ := net.SplitHostPort(b.Addr.Dial)
	var err error
	for _, a := range *known { // at least one
		var nc net.Conn
		if nc, err = s.opt.Dial(ctx, "tcp", net.JoinHostPort(a.String(), port)); err == nil || ctx.Err() != nil {
			return nc, err
		}
	}
	return nil, err
}

// secure brings TLS up over a connection to the backend.
func (p *pool) secure(ctx context.Context, nc net.Conn, b *backend.Backend) (net.Conn, error) {
	config := p.keys.config.Load().Clone()
	config.ServerName = cmp.Or(p.cfg.Backend.TLS.ServerName, b.Addr.Name)
	config.ClientSessionCache = sessions{config.ClientSessionCache, b.Addr.Dial}
	t := tls.Client(nc, config)
	if err := t.HandshakeContext(ctx); err != nil {
		_ = nc.Close()
		return nil, err
	}
	return t, nil
}

// resolveLoop asks again where the names of backends lead. Every connect asks
// for itself; this is for connections that are kept, which must not be used
// after their address is no longer the backend's.
func (s *Server) resolveLoop() {
	tick := time.NewTicker(s.resolveEvery)
	defer tick.Stop()
	for {
		for _, p := range s.now.Load().all() {
			for _, b := range p.Backends() {
				p.resolve(s, b)
			}
		}
		select {
		case <-s.ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (p *pool) resolve(s *Server, b *backend.Backend) {
	if !named(b) {
		return
	}
	ctx, cancel := context.WithTimeout(s.ctx, resolveLimit)
	defer cancel()
	found, err := s.opt.Resolve(ctx, b.Addr.Name)
	u := p.of(b)
	switch {
	case s.ctx.Err() != nil:
		return
	case err != nil || len(found) == 0:
		if !u.lost.Swap(true) {
			s.log.Warn("a backend's name cannot be resolved; the addresses that it had, if any, are used", "pool", p.Name, "backend", b.ID, "err", err)
		}
		return
	}
	for i := range found {
		found[i] = found[i].Unmap().WithZone("")
	}
	u.known.Store(&found)
	u.lost.Store(false)
	u.idle.DropRemote(func(at net.Addr) bool {
		t, ok := at.(*net.TCPAddr)
		return ok && !slices.Contains(found, t.AddrPort().Addr().Unmap().WithZone(""))
	})
}

// named tells whether the backend is known by a name rather than an address.
func named(b *backend.Backend) bool {
	_, err := netip.ParseAddr(b.Addr.Name)
	return err != nil
}
