package proxy

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/starling-lb/starling/proxy/backend"
)

// relaying has a listener take the PROXY protocol from the networks.
func relaying(networks ...string) func(*plan) {
	return func(g *plan) { g.listener.ProxyProtocol, g.listener.TrustedProxies = true, networks }
}

func v2(command, family byte, block ...byte) string {
	return "\r\n\r\n\x00\r\nQUIT\n" + string([]byte{command, family, 0, byte(len(block))}) + string(block)
}

// Every header goes through a live server, by TLS and without, in one piece
// with the request and byte by byte.
func TestProxyProtocol(t *testing.T) {
	a := newAuthority(t)
	secure := secured(t, a)
	backendURL := echo(t)
	plain := newDoor(t, relaying("127.0.0.0/8", "203.0.113.0/24"), backendURL)
	byTLS := newDoor(t, func(g *plan) { secure(g); relaying("127.0.0.0/8", "203.0.113.0/24")(g) }, backendURL)
	const chain = "X-Forwarded-For: 198.51.100.9\r\nX-Forwarded-Proto: gopher\r\n"
	for _, test := range []struct{ name, header, want string }{
		{"v1", "PROXY TCP4 192.0.2.1 127.0.0.1 4711 80\r\n", "192.0.2.1"},
		{"v1 IPv6", "PROXY TCP6 2001:db8::7 ::1 4711 80\r\n", "2001:db8::7"},
		{"v1 UNKNOWN", "PROXY UNKNOWN\r\n", "198.51.100.9, 127.0.0.1"},
		{"v1 of a trusted proxy", "PROXY TCP4 203.0.113.5 127.0.0.1 4711 80\r\n", "198.51.100.9, 203.0.113.5"},
		{"v2", v2(0x21, 0x11, 192, 0, 2, 1, 127, 0, 0, 1, 1, 2, 0, 80), "192.0.2.1"},
		{"v2 with a TLV", v2(0x21, 0x11, 192, 0, 2, 1, 127, 0, 0, 1, 1, 2, 0, 80, 4, 0, 2, 0, 0), "192.0.2.1"},
		{"v2 of a trusted proxy", v2(0x21, 0x11, 203, 0, 113, 5, 127, 0, 0, 1, 1, 2, 0, 80), "198.51.100.9, 203.0.113.5"},
		{"v2 LOCAL", v2(0x20, 0), "198.51.100.9, 127.0.0.1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			request := "GET / HTTP/1.1\r\nHost: t.test\r\n" + chain + "\r\n"
			check := func(how string, in *bufio.Reader, proto string) {
				t.Helper()
				resp, body := answer(t, in)
				wantStatus(t, resp, 200, "")
				if strings.Contains(test.want, ",") {
					proto = "gopher"
				}
				if want := "x-forwarded-for=" + test.want + "\nx-forwarded-proto=" + proto + "\n"; !strings.Contains(body, want) {
					t.Errorf("%s: the backend saw %q, want %q", how, body, want)
				}
			}
			c := plain.dial(t)
			whole(t, c, test.header+request+request) // pipelined
			in := bufio.NewReader(c)
			check("first", in, "http")
			check("second", in, "http")

			c = plain.dial(t)
			trickle(t, c, test.header+request)
			check("in pieces", bufio.NewReader(c), "http")

			for _, send := range []func(*testing.T, net.Conn, string){whole, trickle} {
				raw := &glued{TCPConn: byTLS.dial(t), t: t, front: test.header, send: send}
				s := tls.Client(raw, trusting(a))
				io.WriteString(s, request)
				check("by TLS", bufio.NewReader(s), "https")
			}
		})
	}
}

// What a trusted sender says of the client's TLS is told the backend; the
// client's own word is not.
func TestProxyProtocolTLS(t *testing.T) {
	r := newDoor(t, relaying("127.0.0.0/8"), echo(t))
	for client, proto := range map[byte]string{0: "http", 1: "https"} {
		header := v2(0x21, 0x11, 192, 0, 2, 1, 127, 0, 0, 1, 1, 2, 0, 80, 0x20, 0, 5, client, 0, 0, 0, 0)
		for _, request := range []string{get, "GET / HTTP/1.1\r\nHost: t.test\r\nX-Forwarded-Proto: gopher\r\n\r\n"} {
			_, body := ask(t, r.dial(t), header+request)
			if want := "x-forwarded-proto=" + proto + "\n"; !strings.Contains(body, want) {
				t.Errorf("the backend saw %q, want %q", body, want)
			}
		}
	}
}

// glued sends something in front of the first write, together with it.
type glued struct {
	*net.TCPConn
	t     *testing.T
	front string
	send  func(*testing.T, net.Conn, string)
}

func (g *glued) Write(p []byte) (int, error) {
	if g.front != "" {
		g.send(g.t, g.TCPConn, g.front+string(p))
		g.front = ""
		return len(p), nil
	}
	return g.TCPConn.Write(p)
}

func whole(t *testing.T, c net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		t.Error(err)
	}
}

func trickle(t *testing.T, c net.Conn, text string) {
	t.Helper()
	for i := range len(text) {
		whole(t, c, text[i:i+1])
	}
}

func TestProxyProtocolRefused(t *testing.T) {
	open := newDoor(t, func(g *plan) {
		relaying("127.0.0.0/8")(g)
		g.cfg.Timeouts.RequestHeader = 300 * time.Millisecond
	}, echo(t))
	strict := newDoor(t, relaying("192.0.2.0/24"), echo(t))
	const header = "PROXY TCP4 192.0.2.1 127.0.0.1 4711 80\r\n"
	for _, test := range []struct {
		name, sent, why string
		r               *door
	}{
		{"a peer outside", header + get, "untrusted", strict},
		{"no header", get, "broken", open},
		{"broken", "PROXY TCP4 192.0.2.1 127.0.0.1 99999 80\r\n" + get, "broken", open},
		{"too long", "PROXY UNKNOWN " + strings.Repeat("x", 200) + "\r\n" + get, "broken", open},
		{"v2 too long", "\r\n\r\n\x00\r\nQUIT\n\x21\x11\xff\xff" + get, "broken", open},
		{"half of one", header[:20], "broken", open},
	} {
		before := test.r.metric(t, "proxy_protocol_errors_total", test.r.addr, test.why)
		c := test.r.dial(t)
		io.WriteString(c, test.sent)
		if got := closed(t, c); got != "" {
			t.Errorf("%s: answered %q", test.name, got)
		}
		if got := test.r.metric(t, "proxy_protocol_errors_total", test.r.addr, test.why); got != before+1 {
			t.Errorf("%s: counted %v times as %s, want 1", test.name, got-before, test.why)
		}
	}
	if n := open.metric(t, "streams_total") + strict.metric(t, "streams_total"); n != 0 {
		t.Errorf("%v streams", n)
	}
}

// The streams of a relayed client carry its address, which others read.
func TestProxyProtocolStreams(t *testing.T) {
	r := newDoor(t, relaying("127.0.0.0/8"), hanging(t))
	for _, part := range []string{"PROXY TCP4 192.0.2.1 127.0.0.1 4711 80\r\n", get} {
		c := r.dial(t)
		r.Streams(10) // the race detector looks on
		io.WriteString(c, "PROXY TCP4 192.0.2.1 127.0.0.1 4711 80\r\n"+part)
	}
	settles(t, func() string {
		if list := r.Streams(10); len(list) != 1 || list[0].Client != "192.0.2.1" {
			return fmt.Sprintf("the streams are %+v", list)
		}
		return ""
	})
}

// A shortage of descriptors is waited out.
func TestAcceptErrors(t *testing.T) {
	var failures atomic.Int64
	failures.Store(3)
	r := newDoor(t, func(g *plan) {
		g.opt.Listen = func(ctx context.Context, network, addr string) (net.Listener, error) {
			l, err := (&net.ListenConfig{}).Listen(ctx, network, addr)
			return failing{l, &failures}, err
		}
	}, echo(t))
	resp, _ := ask(t, r.dial(t), get)
	wantStatus(t, resp, 200, "")
	if n := r.metric(t, "accept_errors_total"); n != 3 || r.log.count("accept failed") != 3 {
		t.Errorf("%v accept errors, %d in the log; want 3", n, r.log.count("accept failed"))
	}
	failures.Store(1 << 40) // and the stop does not wait for it
}

type failing struct {
	net.Listener
	left *atomic.Int64
}

func (f failing) Accept() (net.Conn, error) {
	if f.left.Add(-1) >= 0 {
		return nil, &net.OpError{Op: "accept", Err: syscall.EMFILE}
	}
	return f.Listener.Accept()
}

// More connections than allowed are told so, and beyond a number closed; none
// keeps its place.
func TestMaxConnections(t *testing.T) {
	a := newAuthority(t)
	secure := secured(t, a)
	for name, edit := range map[string]func(*plan){"plain": func(*plan) {}, "TLS": secure} {
		r := newDoor(t, func(g *plan) { edit(g); g.listener.MaxConnections = 2 }, echo(t))
		dial := func() net.Conn {
			if name == "TLS" {
				return r.dialTLS(t, trusting(a))
			}
			return r.dial(t)
		}
		first, second := dial(), dial()
		ask(t, first, get)
		ask(t, second, get)
		third := dial()
		resp, _ := ask(t, third, get)
		third.Close()
		wantStatus(t, resp, 503, backend.TooManyConnections)
		if resp.Header.Get("Retry-After") == "" || !resp.Close {
			t.Errorf("%s: no Retry-After, or the connection stays", name)
		}
		ask(t, first, get)
		first.Close()
		settles(t, func() string {
			if n := r.metric(t, "client_connections"); n != 1 {
				return fmt.Sprintf("%s: %v connections", name, n)
			}
			return ""
		})
		resp, _ = ask(t, dial(), get)
		wantStatus(t, resp, 200, "")
	}
}

func TestMaxConnectionsFlood(t *testing.T) {
	r := newDoor(t, func(g *plan) { g.listener.MaxConnections = 1 }, echo(t))
	ask(t, r.dial(t), get)
	for range refusals + 20 {
		c, err := net.Dial("tcp", r.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	settles(t, func() string {
		if n := r.metric(t, "shed_total", string(backend.TooManyConnections)); n != 20 {
			return fmt.Sprintf("%v were closed without a word, want 20", n)
		}
		return ""
	})
	if n := r.metric(t, "client_connections"); n != 1+refusals {
		t.Errorf("%v connections are open, want %d", n, 1+refusals)
	}
}

func TestDescriptorWarning(t *testing.T) {
	const text = "descriptor limit is below"
	for _, test := range []struct {
		most  int
		limit int64
		warns int
	}{{-1, 1024, 0}, {0, 1024, 0}, {100, 1200, 0}, {101, 1200, 1}} {
		r := newDoor(t, func(g *plan) { g.listener.MaxConnections = test.most }, echo(t))
		before := r.log.count(text)
		r.warnDescriptors(test.limit)
		if n := r.log.count(text) - before; n != test.warns {
			t.Errorf("max_connections %d, limit %d: %d warnings, want %d", test.most, test.limit, n, test.warns)
		}
	}
}

// The runtime raises the soft limit to the hard one, so that nobody has to.
func TestDescriptorLimitIsRaised(t *testing.T) {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		t.Fatal(err)
	}
	if l.Cur+1 < l.Max {
		t.Errorf("soft limit %d, hard limit %d", l.Cur, l.Max)
	}
}
