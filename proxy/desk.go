package proxy

import (
	"time"

	"github.com/starling-lb/starling/proxy/backend"
	"github.com/starling-lb/starling/proxy/wire"
)

// desk is what the goroutine that serves a connection works with. A stream that
// goes on without a goroutine has none: it keeps a gist of what was on it.
type desk struct {
	gate *gate // what the configuration says, from the request's head on

	req  wire.Request
	resp wire.Response
	up   wire.Relay  // the request's body
	kept wire.Replay // of it, what may have to be sent again
	out  []byte      // the request as sent on, then the head of the answer
	body int         // where the request's body begins in out

	fields   *bodyFields   // what is known of the body's fields; nil: nobody asked
	bodyWait time.Duration // spent waiting for a body, to find its route or key
	told     backend.Code  // of the answer of starling's own that the client was sent
	hashed   uint64        // of the key that the pool's policy goes by; 0: none

	id     []byte // the request's id
	trace  traceContext
	parent [8]byte // the span that the client's request belongs to; zero: none that we continue
	hop    []byte  // the traceparent as it goes on; empty: the client's own does
}

// sit takes a desk, for a connection of the listener.
func (s *Server) sit(l *listener) *desk {
	d, ok := s.desks.Get().(*desk)
	if !ok {
		d = &desk{}
	}
	d.gate = l.gate.Load()
	return d
}

// clear gives the desk back, with nothing on it but room to write.
func (s *Server) clear(d *desk) {
	d.req.Release()
	d.resp.Release()
	out := d.out
	if cap(out) > maxKeptOut {
		out = nil
	}
	*d = desk{out: out[:0], id: d.id[:0], hop: d.hop[:0]}
	s.desks.Put(d)
}

// gist is what the end of a stream needs of its heads.
type gist struct {
	unread bool // the request's body was not wholly read
	closes bool // the backend ends its connection after the answer
	record *recordGist
}

// recordGist is what the record of a stream needs besides.
type recordGist struct {
	request wire.Gist
	status  int
	id      string
	trace   traceContext
	parent  [8]byte
}

// leaveDesk keeps the gist of what is on the desk, and gives the desk back.
func (c *client) leaveDesk() {
	d := c.desk
	c.gist = gist{unread: !c.bodyRead(), closes: d.resp.Close}
	if c.server.recording() {
		c.gist.record = &recordGist{request: d.req.Gist(), status: d.resp.Status, id: string(d.id), trace: d.trace, parent: d.parent}
	}
	if v := c.stream.visit; v != nil {
		v.key, v.cookie = nil, nil // they may lie on the desk
	}
	c.desk = nil
	c.server.clear(d)
}

// returnToDesk takes a desk again, and has the gist on it.
func (c *client) returnToDesk() {
	c.desk = c.server.sit(c.listener)
	if g := c.gist.record; g != nil {
		c.req.Recall(g.request)
		c.resp.Status = g.status
		c.id, c.trace, c.parent = append(c.id, g.id...), g.trace, g.parent
	}
	c.resp.Close = c.gist.closes
	if c.gist.unread {
		c.req.Length = wire.Chunked // or any other that is not 0
	}
	c.gist = gist{}
}
