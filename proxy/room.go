package proxy

import (
	"cmp"
	"net"
	"net/netip"
	"time"
)

// A listener that is full takes in a newcomer in the place of a connection that
// waits without a request: of the address that has most, where that has more than
// the newcomer's; else of whoever has waited for long. So neither one address nor
// connections that were left open keep others out. A request is never ended for it.

// refusals is how many connections that may not stay are told so at a time;
// beyond, they are closed without a word.
const refusals = 100

// longWait is how long a connection without a request keeps its place from those
// who have none, whoever they are.
const longWait = 10 * time.Second

// fullEvery is how often the log says that a listener is full.
const fullEvery = time.Minute

// refusal is why a connection may not stay.
type refusal uint8

const (
	stays refusal = iota
	full
	homeFull
)

func (r refusal) String() string {
	if r == homeFull {
		return "this address has as many connections as it may"
	}
	return "the listener has as many connections as it may"
}

// home is an address that connections come from; of IPv6 the /64, which is one
// site's.
type home struct {
	of   netip.Addr
	open int64 // connections that have a place
}

// with is how many connections from there have a place, and n more.
func (h *home) with(n int64) int64 {
	if h == nil {
		return n
	}
	return h.open + n
}

// crowd is the connections of a listener, by where they come from. The server's
// mu guards it.
type crowd struct {
	homes     map[netip.Addr]*home
	fruitless time.Time // until when nobody is looked for who could make room
	most      int64     // for somebody from a home of as many, or more
	said      time.Time // that the listener is full
}

// find is the home of an address, which may be a new one.
func (w *crowd) find(a netip.Addr) *home {
	if a.Is6() {
		a = netip.PrefixFrom(a, 64).Masked().Addr()
	}
	h := w.homes[a]
	if h == nil {
		h = &home{of: a}
	}
	return h
}

// count adds n connections to those of a home.
func (w *crowd) count(h *home, n int64) {
	if h == nil {
		return
	}
	if h.open += n; h.open == 0 {
		delete(w.homes, h.of)
		return
	}
	if w.homes == nil {
		w.homes = map[netip.Addr]*home{}
	}
	w.homes[h.of] = h
}

// seat gives a connection a place at its listener, or has it told that it gets
// none. False: so many are told already that it is to be closed.
func (s *Server) seat(c *client, from net.Addr) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := c.listener
	if at, ok := from.(*net.TCPAddr); ok && !c.trusted { // proxies that are trusted bring many clients
		c.home = l.crowd.find(at.AddrPort().Addr().Unmap())
	}
	if limit := c.gate.limit; limit > 0 && l.open.Load() >= limit && !s.makeRoom(c) {
		c.refused = full
	}
	s.place(c)
	if c.refused != stays && l.told.Load() > refusals {
		s.unseat(c)
		return false
	}
	s.clients[c] = struct{}{}
	return true
}

// place counts a connection where it belongs: to those that have a place, unless
// its home has too many.
func (s *Server) place(c *client) {
	l := c.listener
	if most := int64(c.gate.cfg.MaxClientConnections); most > 0 && c.home != nil && c.home.open >= most {
		c.refused = homeFull
	}
	if c.refused != stays {
		l.told.Add(1)
		return
	}
	l.open.Add(1)
	l.crowd.count(c.home, 1)
}

// relocate has a connection counted where its PROXY protocol header says that it
// comes from.
func (s *Server) relocate(c *client, from netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.refused != stays || c.ousted {
		return
	}
	s.unseat(c)
	c.home = nil
	if !c.trusted {
		c.home = c.listener.crowd.find(from)
	}
	s.place(c)
}

// leave forgets a connection that has ended.
func (s *Server) leave(c *client) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unseat(c)
	delete(s.clients, c)
}

// unseat takes a connection out of the counts.
func (s *Server) unseat(c *client) {
	l := c.listener
	switch {
	case c.ousted:
	case c.refused != stays:
		l.told.Add(-1)
	default:
		l.open.Add(-1)
		l.crowd.count(c.home, -1)
	}
}

// makeRoom ends connections so that there is a place for c, some at a time, as
// looking for them takes longer the more there are.
func (s *Server) makeRoom(c *client) bool {
	l, now, most := c.listener, time.Now(), c.home.with(1)
	if now.Before(l.crowd.fruitless) && most >= l.crowd.most {
		return false
	}
	var freed int
	for _, o := range s.guests(c, most, now) {
		if o.conn.Oust() {
			s.unseat(o)
			o.ousted = true
			freed++
		}
	}
	if freed == 0 {
		l.crowd.fruitless, l.crowd.most = now.Add(time.Duration(len(s.clients))*10*time.Microsecond), most
	}
	s.doors.displaced.WithLabelValues(l.address()).Add(float64(freed))
	if now.Sub(l.crowd.said) >= fullEvery {
		l.crowd.said = now
		s.log.Warn("the listener is full; connections that wait without a request are closed for new ones, and where there are none, new ones are refused",
			"listener", l.named, "max_connections", c.gate.limit, "closed", freed)
	}
	return freed > 0
}

// guests are those who may have to make room for c, from whose home then most come:
// a share of the listener's.
func (s *Server) guests(c *client, most int64, now time.Time) []*client {
	l, share := c.listener, int(max(1, c.gate.limit/64))
	var many, long []*client
	for o := range s.clients {
		if o.listener != l || o.refused != stays || o.ousted || !o.conn.Waits() {
			continue
		}
		switch n := o.home.with(0); {
		case n > most:
			most, many = n, append(many[:0], o)
		case n == most && len(many) > 0 && len(many) < share:
			many = append(many, o)
		case len(long) < share && now.UnixNano()-cmp.Or(o.rested.Load(), o.born) > int64(longWait):
			long = append(long, o)
		}
	}
	if len(many) > 0 {
		return many
	}
	return long
}
