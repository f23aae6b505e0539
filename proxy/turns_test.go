package proxy_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/starling-lb/starling/proxy"
)

// moody is a backend that does to a request what its path says.
func moody(t testing.TB) *origin {
	over := make(chan struct{})
	o := newOrigin(t, func(o *origin, c *net.TCPConn, in *bufio.Reader) {
		for r := o.next(in); r != nil; r = o.next(in) {
			if _, err := io.Copy(io.Discard, r.Body); err != nil {
				return
			}
			switch r.URL.Path {
			case "/breaks":
				return
			case "/stops":
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
				return
			case "/hangs":
				gone := make(chan struct{})
				go func() {
					defer close(gone)
					_, _ = io.Copy(io.Discard, in)
				}()
				select {
				case <-gone:
				case <-over:
				}
				return
			case "/events":
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
				for range 5 {
					if _, err := io.WriteString(c, "8\r\ndata: a\n\r\n"); err != nil {
						return
					}
				}
				if _, err := io.WriteString(c, "0\r\n\r\n"); err != nil {
					return
				}
			case "/ws":
				_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n")
				_, _ = io.Copy(io.Discard, in)
				return
			default:
				reply(c, "done")
			}
		}
	})
	t.Cleanup(func() { close(over) })
	return o
}

// unruly is a book whose bindings change under the streams.
type unruly struct{ *book }

func (u unruly) shake(rng *rand.Rand) {
	u.mu.Lock()
	defer u.mu.Unlock()
	key := fmt.Sprint("s", rng.IntN(30))
	switch rng.IntN(5) {
	case 0:
		delete(u.homes, key)
	case 1:
		u.epoch++
		u.homes[key] = proxy.Home{Backend: fmt.Sprint("b", rng.IntN(5)), Epoch: u.epoch} // b3 refuses, b4 is nobody
	case 2:
		u.looks = append(u.looks, errors.New("held"))
	}
}

// However streams end, in whatever phase, each turn ends once, and nothing is
// left counted.
func TestTurnsEndOnce(t *testing.T) {
	t.Parallel()
	const clients, each = 16, 80
	for _, plain := range []bool{false, true} {
		b := unruly{newBook(t)}
		g := newFrontFor(t, b, plain, func(p *proxy.PoolConfig) {
			sticky()(p)
			capOf(6, 4)(p)
			p.Queue.Timeout = 50 * time.Millisecond
		}, moody(t).addr, moody(t).addr, moody(t).addr, closed(t))
		var all sync.WaitGroup
		for i := range clients {
			rng := rand.New(rand.NewPCG(1, uint64(i)))
			all.Go(func() {
				for range each {
					b.shake(rng)
					g.misbehave(rng)
				}
			})
		}
		all.Wait()
		g.idle()
		b.rests(patience)
		if turns, reasons := b.asked(); len(turns) < clients*each/2 || len(reasons) == 0 {
			t.Errorf("%d turns, %d rebinds: too few to tell", len(turns), len(reasons))
		}
	}
}

// misbehave sends a request, and leaves when it likes to.
func (g *front) misbehave(rng *rand.Rand) {
	nc, err := net.Dial("tcp", g.Addrs()[0])
	if err != nil {
		g.t.Error(err)
		return
	}
	c := nc.(*net.TCPConn)
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(patience))
	path := []string{"/", "/", "/breaks", "/stops", "/hangs", "/events", "/ws"}[rng.IntN(7)]
	method, extra := "GET", ""
	switch {
	case path == "/ws":
		extra = "Connection: Upgrade\r\nUpgrade: websocket\r\n"
	case rng.IntN(4) == 0:
		method, extra = "POST", "Content-Length: 70000\r\n"
	}
	_, _ = fmt.Fprintf(c, "%s %s HTTP/1.1\r\nHost: x\r\nX-Session-ID: s%d\r\n%s\r\n", method, path, rng.IntN(30), extra)
	if method == "POST" {
		_, _ = c.Write(make([]byte, rng.IntN(2)*70000))
	}
	switch rng.IntN(4) {
	case 0: // at once
	case 1:
		_ = c.SetLinger(0)
	case 2: // after a while, or what has come by then
		_ = c.SetReadDeadline(time.Now().Add(time.Duration(rng.IntN(3000)) * time.Microsecond))
		_, _ = c.Read(make([]byte, 1+rng.IntN(200)))
	default:
		_ = c.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		if r, err := http.ReadResponse(bufio.NewReader(c), nil); err == nil {
			_, _ = io.Copy(io.Discard, r.Body)
		}
	}
}
