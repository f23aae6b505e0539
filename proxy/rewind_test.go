package proxy_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/starling-lb/starling/proxy"
)

// Where no body is kept, a request whose body has begun to go to a connection
// that turns out to be closed is not sent again: a part of it would be missing.
func TestStaleConnectionKeepsNothing(t *testing.T) {
	for name, edit := range map[string]func(*proxy.PoolConfig){
		"no room":            func(p *proxy.PoolConfig) { p.Retry.MaxReplayBytes = 0 },
		"not of the methods": func(p *proxy.PoolConfig) { p.Retry.Methods = []string{"GET"} },
	} {
		t.Run(name, func(t *testing.T) {
			begun := make(chan struct{})
			o := newOrigin(t, func(o *origin, c *net.TCPConn, in *bufio.Reader) {
				switch r := o.next(in); {
				case r == nil:
				case r.URL.Path == "/warm":
					reply(c, "")
					if r := o.next(in); r != nil {
						io.CopyN(io.Discard, r.Body, 20)
						close(begun)
					}
				default:
					body, _ := io.ReadAll(r.Body)
					reply(c, string(body))
				}
			})
			g := newFront(t, edit, o.addr)
			hear(g.get("/warm"), "GET")
			g.soon(patience, func() string { return want(int64(g.metric("pool_connections", "idle")), 1) })
			c := g.dial()
			io.WriteString(c, "PUT /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\na\r\naaaaaaaaaa\r\n")
			g.soon(patience, func() string { return want(o.heads.Load(), 2) }) // the next piece comes apart
			io.WriteString(c, "a\r\nbbbbbbbbbb\r\n")
			<-begun
			io.WriteString(c, "a\r\ncccccccccc\r\n0\r\n\r\n")
			if s := hear(c, http.MethodPut); s.status != http.StatusBadGateway {
				t.Errorf("%d %q", s.status, s.body)
			}
			expect(t, "deliveries", o.heads.Load(), 2)
		})
	}
}
