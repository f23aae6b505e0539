package wire

import (
	"crypto/tls"
	"errors"
	"net"
	"os"
	"time"
)

// Front is a connection that brings a PROXY protocol header before TLS: what
// was read past the header is kept for TLS.
type Front struct {
	net.Conn
	end End
}

// NewFront wraps a connection that tls.Server is to be given.
func NewFront(nc net.Conn, stock *Buffers) *Front { return &Front{Conn: nc, end: newEnd(nc, stock)} }

// Read implements net.Conn.
func (f *Front) Read(p []byte) (int, error) {
	if left := f.end.Buffered(); len(left) > 0 {
		n := copy(p, left)
		f.end.Discard(n)
		f.end.Rest()
		return n, nil
	}
	return f.Conn.Read(p)
}

// socket is the connection that carries nc's bytes: what stands above it, TLS
// and a Front, is ours.
func socket(nc net.Conn) net.Conn {
	if t, ok := nc.(*tls.Conn); ok {
		nc = t.NetConn()
	}
	if f, ok := nc.(*Front); ok {
		nc = f.Conn
	}
	return nc
}

// ReadProxy takes the PROXY protocol header that the connection begins with,
// by TLS or not. It is to be called before anything else is read, and fails
// with ErrProxy, or as a read does.
func (c *Conn) ReadProxy(by time.Time) (ProxyHeader, error) {
	from := &c.End
	if t, ok := c.nc.(*tls.Conn); ok {
		from = &t.NetConn().(*Front).end
	}
	c.rest()
	renew(&from.readBy, by, 0)
	_ = c.nc.SetReadDeadline(by)
	for {
		h, n, err := ParseProxy(from.Buffered())
		if n > 0 || err != nil {
			from.Discard(n)
			return h, err
		}
		if c.cut.Load() { // before the deadline: it may have undone the interrupt's
			return h, ErrInterrupted
		}
		if err := from.fill(bound{by: by}); err != nil {
			return h, c.cause(err)
		}
	}
}

// Handshake brings TLS up, where the connection is one of TLS. It fails with
// ErrIdle when by has come, ErrInterrupted, or the error of package tls.
func (c *Conn) Handshake(by time.Time) error {
	t, ok := c.nc.(*tls.Conn)
	if !ok {
		return nil
	}
	c.rest()
	renew(&c.readBy, by, 0) // they stand until a read and a write set their own
	renew(&c.writeBy, by, 0)
	_ = t.SetDeadline(by)
	if c.cut.Load() { // before the deadline: it may have undone the interrupt's
		return ErrInterrupted
	}
	if err := t.Handshake(); err != nil {
		return c.cause(err)
	}
	return nil
}

// A write of TLS that runs into its deadline leaves the connection unusable,
// however much of it the peer took. So that a slow reader is given its time for
// each piece, and not for all, a long write goes in pieces of a record's size.
const tlsPiece = 16 << 10

// piece is how much of p is written at once.
func piece(nc net.Conn, p []byte) []byte {
	if _, ok := nc.(*tls.Conn); ok && len(p) > tlsPiece {
		return p[:tlsPiece]
	}
	return p
}

// takeLeave closes a connection. TLS says so to its peer, which may take 5 s
// where that reads nothing: here it takes less.
func takeLeave(nc net.Conn) {
	if t, ok := nc.(*tls.Conn); ok {
		limit := time.AfterFunc(200*time.Millisecond, func() { _ = t.NetConn().Close() })
		defer limit.Stop()
	}
	_ = nc.Close()
}

// silence closes what is below TLS, so that its peer hears no orderly end.
func silence(nc net.Conn) {
	if t, ok := nc.(*tls.Conn); ok {
		_ = t.NetConn().Close()
	}
}

// mute tells whether TLS holds nothing that was read before it was asked for,
// which what is below does not show. The read deadline is over after it.
func mute(nc net.Conn) bool {
	t, ok := nc.(*tls.Conn)
	if !ok {
		return true
	}
	_ = t.SetReadDeadline(longAgo())
	var b [1]byte
	n, err := t.Read(b[:])
	return n == 0 && errors.Is(err, os.ErrDeadlineExceeded)
}

// endTLS ends the sending side of TLS, not of what is below it.
func endTLS(nc net.Conn) error {
	if t, ok := nc.(*tls.Conn); ok {
		return t.CloseWrite()
	}
	return nil
}
