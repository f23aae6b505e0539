package proxy

import (
	"bytes"
	"errors"
	"time"

	"github.com/starling-lb/starling/proxy/backend"
	"github.com/starling-lb/starling/proxy/wire"
)

// How much of a body a route by one of its fields may wait for, and how long a
// request waits for its body in all. The field of a longer or slower body is not
// found; the body goes on as it is.
const (
	maxRouteBody  = 256 << 10
	routeBodyWait = time.Second
)

// jsonField is a field at the top of a JSON body and the value it must have.
type jsonField struct{ name, value string }

// route finds the pool of a request; nil where no route matches.
func (c *client) route() (*pool, error) {
	for i := range c.gate.routes {
		r := &c.gate.routes[i]
		if !r.matches(&c.req) {
			continue
		}
		if len(r.json) > 0 {
			if !c.sendsJSON() {
				continue
			}
			ok, err := c.looked().match(c, r.json)
			if err != nil {
				return nil, err
			}
			if !ok {
				continue
			}
		}
		return r.pool, nil
	}
	return nil, nil
}

// looked is what is known of the body's fields; nothing, the first time.
func (c *client) looked() *bodyFields {
	if c.fields == nil {
		c.fields = &bodyFields{}
	}
	return c.fields
}

// jsonValue is the value of a field that begins and ends within so many bytes of
// a JSON body; empty where it has none.
func (c *client) jsonValue(name string, within int) ([]byte, error) {
	if !c.sendsJSON() {
		return nil, nil
	}
	f, _, err := c.looked().find(c, name, within)
	if err != nil || f.state != fieldFound || f.end > within {
		return nil, err
	}
	return f.appendValue(nil, c.fields.document(c)), nil
}

// bodyFields reads fields at the top of a request's JSON body as it comes. It
// takes nothing off the connection: what it has seen is still sent on.
type bodyFields struct {
	room   [2]fieldScan
	scans  []fieldScan // one per field that was asked for
	chunks wire.Chunks // of a chunked body: where its framing was taken off
	framed int         // so far, in bytes of the buffer
	data   []byte      // and what it held
	by     time.Time   // until when more is waited for; zero: nothing was yet
	limit  int         // of the body in bytes, up to which more was waited for
	missed string      // why nothing more can be found; "" while it can

	counted bool // as a miss: a body is one at most
}

// match tells whether the body has all these fields.
func (b *bodyFields) match(c *client, want []jsonField) (bool, error) {
	for i := range want {
		f, miss, err := b.find(c, want[i].name, maxRouteBody)
		if miss != "" && !b.counted {
			b.counted = true
			c.server.metrics.routeMisses.WithLabelValues(miss).Inc()
		}
		if err != nil || f.state != fieldFound || !f.is(want[i].value, b.document(c)) {
			return false, err
		}
	}
	return true, nil
}

// sendsJSON tells whether there is a body of JSON that can be read as it comes.
func (c *client) sendsJSON() bool {
	if c.req.Length == 0 {
		return false
	}
	if coding, ok := c.req.Field("content-encoding"); ok && !bytes.EqualFold(coding, []byte("identity")) {
		return false
	}
	kind, _ := c.req.Field("content-type")
	kind, _, _ = bytes.Cut(kind, []byte{';'})
	kind = bytes.TrimRight(kind, " \t")
	const suffix = "+json"
	return bytes.EqualFold(kind, []byte("application/json")) ||
		len(kind) > len(suffix) && bytes.EqualFold(kind[len(kind)-len(suffix):], []byte(suffix))
}

// find reads on until it is known what the field is, or that it cannot be; miss
// says why it is not found. No more than limit bytes are waited for.
func (b *bodyFields) find(c *client, name string, limit int) (f *fieldScan, miss string, err error) {
	if b.missed == "far" && limit > b.limit {
		b.missed = ""
	}
	b.limit = max(b.limit, limit)
	f = b.scan(name)
	for f.state == fieldUnknown && b.missed == "" {
		document := b.document(c)
		if f.scan(document) != fieldUnknown {
			break
		}
		if len(document) >= limit {
			b.missed = "far"
		} else if err := b.more(c, limit); err != nil {
			return f, "", err
		}
	}
	switch f.state {
	case fieldFound:
		return f, "", nil
	case fieldAbsent:
		return f, "absent", nil
	case fieldMalformed:
		return f, "malformed", nil
	}
	return f, b.missed, nil
}

func (b *bodyFields) scan(name string) *fieldScan {
	if b.scans == nil {
		b.scans = b.room[:0]
	}
	for i := range b.scans {
		if b.scans[i].name == name {
			return &b.scans[i]
		}
	}
	b.scans = append(b.scans, newFieldScan(name))
	return &b.scans[len(b.scans)-1]
}

// document is what has come of the body, without framing.
func (b *bodyFields) document(c *client) []byte {
	p := c.conn.Buffered()
	if c.req.Length >= 0 {
		return p[:min(int64(len(p)), c.req.Length)]
	}
	for b.framed < len(p) && !b.chunks.Done() {
		data, n, err := b.chunks.Next(p[b.framed:])
		if err != nil {
			b.missed = "malformed" // whoever carries the body will say so
			break
		}
		b.data = append(b.data, data...)
		b.framed += n
	}
	return b.data
}

// more waits for more of the body, up to limit bytes of it.
func (b *bodyFields) more(c *client, limit int) error {
	if b.chunks.Done() || c.req.Length >= 0 && int64(len(c.conn.Buffered())) >= c.req.Length {
		b.missed = "malformed" // the document does not end
		return nil
	}
	from := time.Now()
	if b.by.IsZero() {
		b.by = from.Add(routeBodyWait)
		c.stream.goAhead()
	}
	err := c.conn.More(b.by, limit)
	c.bodyWait += time.Since(from)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, wire.ErrIdle):
		b.missed = "late"
	case errors.Is(err, wire.ErrBodyTooLarge):
		b.missed = "far"
	default:
		return &failure{reason: backend.ClientLeft, message: "the client closed its connection within the body", err: err}
	}
	return nil
}

// is compares the field that was found in document.
func (f *fieldScan) is(value string, document []byte) bool {
	const longest = len(`\u0061`) // what a byte may be written with
	if f.end-f.start > longest*len(value) {
		return false
	}
	var room [64]byte
	return string(f.appendValue(room[:0], document)) == value
}
