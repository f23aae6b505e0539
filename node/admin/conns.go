package admin

import (
	"crypto/tls"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/valyala/fasthttp"
)

// turnAwayWait bounds what a client over the limit can cost the accept loop.
const turnAwayWait = time.Second

// conns knows the open connections and which of them are quiet, that is wait
// for a request, so that Stop closes those at once and waits for the others.
type conns struct {
	max int

	mu      sync.Mutex        // guards what is below; never held over a close
	open    map[net.Conn]bool // true: a request is being read or answered
	closing bool              // quiet connections are not wanted any more
}

// add tells whether there is room for c. Whoever adds removes.
func (t *conns) add(c net.Conn) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closing || len(t.open) >= t.max {
		return false
	}
	t.open[c] = false
	return true
}

func (t *conns) remove(c net.Conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.open, c)
}

// mark is fasthttp's hook for a connection that changed its state.
func (t *conns) mark(c net.Conn, state fasthttp.ConnState) {
	if state != fasthttp.StateActive && state != fasthttp.StateIdle {
		return
	}
	busy := state == fasthttp.StateActive
	t.mu.Lock()
	t.open[c] = busy
	unwanted := t.closing && !busy
	t.mu.Unlock()
	if unwanted {
		hangUp(c)
	}
}

// closeQuiet closes every quiet connection, now and from now on.
func (t *conns) closeQuiet() { t.close(func(busy bool) bool { return !busy }) }

// closeAll closes every connection and tells how many requests that cut.
func (t *conns) closeAll() (cut int) {
	t.close(func(busy bool) bool {
		if busy {
			cut++
		}
		return true
	})
	return cut
}

func (t *conns) close(which func(busy bool) bool) {
	var chosen []net.Conn
	t.mu.Lock()
	t.closing = true
	for c, busy := range t.open {
		if which(busy) {
			chosen = append(chosen, c)
		}
	}
	t.mu.Unlock()
	for _, c := range chosen {
		hangUp(c)
	}
}

// hangUp closes at once: TLS's own Close may wait for the client.
func hangUp(c net.Conn) {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	_ = c.Close()
}

// turnAway answers a connection that there is no room for. Nothing is read, so
// that it costs no more than one write into an empty socket; a TLS client gets
// no answer, since a handshake would have to wait for it.
func (s *Server) turnAway(c net.Conn) {
	defer hangUp(c)
	if _, ok := c.(*tls.Conn); ok || s.ctx.Err() != nil {
		return
	}
	id := newRequestID()
	body := errorText(refuse(TooManyConnections, "%d connections are open, which is the limit; close some and try again", s.conns.max), id)
	_ = c.SetDeadline(time.Now().Add(turnAwayWait))
	_, _ = fmt.Fprintf(c, "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Type: application/json\r\n"+
		"X-Starling-Error: %s\r\nX-Request-Id: %s\r\nContent-Length: %d\r\n\r\n%s", TooManyConnections, id, len(body), body)
}
