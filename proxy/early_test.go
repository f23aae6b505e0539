package proxy_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/starling-lb/starling/proxy"
	"github.com/starling-lb/starling/proxy/backend"
)

// padded is a request whose session stands behind as many bytes.
func padded(n int) string {
	body := `{"pad":"` + strings.Repeat("x", n) + `","session":"a"}`
	return fmt.Sprintf("POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}

// A backend that answers a request before it has read it is heard at once, also
// where the whole request is at hand and more than the kernel takes. Its
// connection, on which the end of the request is missing, carries no other.
func TestEarlyAnswerToAWholeRequest(t *testing.T) {
	t.Parallel()
	for name, plain := range map[string]bool{"edges": false, "portable": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			heard := make(chan struct{})
			o := newOrigin(t, func(o *origin, c *net.TCPConn, in *bufio.Reader) {
				if err := c.SetReadBuffer(4 << 10); err != nil {
					t.Error(err)
				}
				r := o.next(in)
				if r == nil {
					return
				}
				if r.Method == "GET" {
					reply(c, "clean")
					return
				}
				io.WriteString(c, "HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\n\r\n")
				<-heard
				if n, err := io.Copy(io.Discard, r.Body); err == nil {
					t.Errorf("the request came whole, with %d bytes of body", n)
				}
			})
			g := newFrontFor(t, newBook(t), plain, func(p *proxy.PoolConfig) {
				sticky("json:session")(p)
				p.Sticky.MaxBodyScan = 16 << 20
			}, o.addr)
			c := g.dial()
			io.WriteString(c, padded(8<<20))
			expect(t, "the early answer", hear(c, "POST").status, 413)
			close(heard)
			expect(t, "the next request's answer", hear(g.get("/"), "GET").body, "clean")
		})
	}
}

// A whole request that is large comes to the backend as it was sent, and its
// connection carries the next; so does response_header count from its end.
func TestLargeWholeRequest(t *testing.T) {
	t.Parallel()
	for name, plain := range map[string]bool{"edges": false, "portable": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			silent := make(chan struct{})
			defer close(silent)
			o := newOrigin(t, func(o *origin, c *net.TCPConn, in *bufio.Reader) {
				for r := o.next(in); r != nil; r = o.next(in) {
					body, _ := io.ReadAll(r.Body)
					if o.heads.Load() == 3 {
						<-silent
					}
					reply(c, sum(string(body)))
				}
			})
			g := newFrontFor(t, newBook(t), plain, func(p *proxy.PoolConfig) {
				sticky("json:session")(p)
				p.Sticky.MaxBodyScan = 16 << 20
				p.Timeouts.ResponseHeader = 3 * time.Second
			}, o.addr)
			request := padded(8 << 20)
			_, body, _ := strings.Cut(request, "\r\n\r\n")
			c := g.dial()
			for range 2 {
				io.WriteString(c, request)
				expect(t, "the answer", hear(c, "POST").body, sum(body))
			}
			g.soon(patience, func() string { return want(int64(g.metric("pool_connections", "idle")), 1) })
			io.WriteString(c, request)
			got := hear(c, "POST")
			expect(t, "the answer that does not come", got.code, string(backend.CodeTimeout))
			expect(t, "streams that waited too long for it", g.metric("timeouts_total", "response_header"), 1)
		})
	}
}

// A backend that stops to read a request, and does not answer, is given up after
// stream_idle.
func TestDeafBackend(t *testing.T) {
	t.Parallel()
	for name, plain := range map[string]bool{"edges": false, "portable": true} {
		for how, whole := range map[string]bool{"whole": true, "in pieces": false} {
			t.Run(name+" "+how, func(t *testing.T) {
				t.Parallel()
				over := make(chan struct{})
				defer close(over)
				o := newOrigin(t, func(o *origin, c *net.TCPConn, in *bufio.Reader) {
					_ = c.SetReadBuffer(4 << 10)
					o.next(in)
					<-over
				})
				g := newFrontFor(t, newBook(t), plain, func(p *proxy.PoolConfig) {
					sticky("json:session")(p)
					p.Timeouts.StreamIdle = 300 * time.Millisecond
					if whole {
						p.Sticky.MaxBodyScan = 16 << 20
					} else {
						p.Sticky.Key = []string{"client_ip"}
					}
				}, o.addr)
				c := g.dial()
				sent := make(chan struct{})
				go func() {
					defer close(sent)
					io.WriteString(c, padded(12<<20)) // fails where the answer is first
				}()
				got := hear(c, "POST")
				expect(t, "status", got.status, 504)
				expect(t, "time-outs", g.metric("timeouts_total", "stream_idle"), 1)
				c.Close()
				await(t, sent)
			})
		}
	}
}
