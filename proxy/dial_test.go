package proxy

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/starling-lb/starling/proxy/backend"
)

// hanging is a backend that answers no request.
func hanging(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) { <-q.Context().Done() }))
	t.Cleanup(s.Close)
	return s.URL
}

// echoTLS is echo by TLS; it tells the server name that it was asked for too.
func echoTLS(t *testing.T, config *tls.Config) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		fmt.Fprintf(w, "sni=%s alpn=%s\n", q.TLS.ServerName, q.TLS.NegotiatedProtocol)
		describe(w, q)
	}))
	s.TLS = config
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// leads connects to addr, whatever is asked for.
func leads(addr string) Dialer {
	return func(ctx context.Context, network, at string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, addr)
	}
}

func TestBackendTLS(t *testing.T) {
	a, clients := newAuthority(t), newAuthority(t)
	f := newFiles(t)
	ca := f.put("ca", a.pem())
	cert, key := clients.issue("starling")
	shown := BackendTLS{CAFile: ca, CertFile: f.put("crt", cert), KeyFile: f.put("key", key)}
	server := func(mutual bool) *httptest.Server {
		config := &tls.Config{Certificates: []tls.Certificate{a.pair("b.test", "127.0.0.1")}, NextProtos: []string{"http/1.1"}}
		if mutual {
			config.ClientAuth, config.ClientCAs = tls.RequireAndVerifyClientCert, clients.pool()
		}
		return echoTLS(t, config)
	}
	open, mutual := server(false), server(true)
	for _, test := range []struct {
		name string
		to   *httptest.Server
		url  string // empty: the server's own
		tls  BackendTLS
		host string
		want string // of the answer; empty: 502
	}{
		{"by address", open, "", BackendTLS{CAFile: ca}, "preserve", "sni= alpn=http/1.1\nhost=t.test\n"},
		{"by name", open, "https://b.test", BackendTLS{CAFile: ca}, "backend", "sni=b.test alpn=http/1.1\nhost=b.test\n"},
		{"by name and port", open, "https://b.test:444", BackendTLS{CAFile: ca}, "backend", "sni=b.test alpn=http/1.1\nhost=b.test:444\n"},
		{"its own port", open, "https://b.test:443", BackendTLS{CAFile: ca}, "backend", "host=b.test\n"},
		{"server_name", open, "https://other.test", BackendTLS{CAFile: ca, ServerName: "b.test"}, "backend", "sni=b.test alpn=http/1.1\nhost=other.test\n"},
		{"another name", open, "https://other.test", BackendTLS{CAFile: ca}, "preserve", ""},
		{"an unknown signer", open, "", BackendTLS{}, "preserve", ""},
		{"shows its certificate", mutual, "", shown, "preserve", "host=t.test\n"},
		{"shows none", mutual, "", BackendTLS{CAFile: ca}, "preserve", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			url := test.url
			if url == "" {
				url = test.to.URL
			}
			r := newDoor(t, func(g *plan) {
				g.pool.Backend.TLS, g.pool.Backend.Host = test.tls, test.host
				g.opt.Dial = leads(test.to.Listener.Addr().String())
				g.opt.Resolve = func(context.Context, string) ([]netip.Addr, error) { return nil, errors.New("none") }
			}, url)
			c := r.dial(t)
			for range 2 {
				resp, body := ask(t, c, get)
				if test.want == "" {
					if resp.StatusCode != 502 {
						t.Fatalf("status %d %q, want 502", resp.StatusCode, body)
					}
					continue
				}
				wantStatus(t, resp, 200, "")
				if !strings.Contains(body, test.want) {
					t.Errorf("the backend saw %q, want %q", body, test.want)
				}
			}
			settles(t, func() string { // the client may have its answer first
				if n := r.metric(t, "pool_connections", "idle"); test.want != "" && n != 1 {
					return fmt.Sprintf("%v kept connections after two requests, want 1", n)
				}
				return ""
			})
		})
	}
}

// A handshake that fails or hangs is a failed connect: another backend is
// tried, and the failed one is blamed.
func TestBackendTLSFails(t *testing.T) {
	t.Parallel() // it waits, mostly
	a := newAuthority(t)
	mute, err := net.Listen("tcp", "127.0.0.1:0") // connects, and says nothing
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { mute.Close() })
	clear := strings.Replace(echo(t), "http:", "https:", 1)
	ca := newFiles(t).put("ca", a.pem())
	good := echoTLS(t, &tls.Config{Certificates: []tls.Certificate{a.pair("127.0.0.1")}})
	for _, test := range []struct {
		name, url string
		status    int
		code      backend.Code
	}{
		{"hangs", "https://" + mute.Addr().String(), 504, backend.CodeTimeout},
		{"no TLS", clear, 502, backend.CodeRefused},
	} {
		edit := func(g *plan) {
			g.pool.Backend.TLS.CAFile, g.pool.Timeouts.Connect = ca, time.Second
			g.pool.Outlier.ConsecutiveFailures = 1
		}
		r := newDoor(t, func(g *plan) { edit(g); g.pool.Retry.MaxAttempts = 1 }, test.url)
		resp, _ := ask(t, r.dial(t), get)
		wantStatus(t, resp, test.status, test.code)
		r = newDoor(t, func(g *plan) { edit(g); g.pool.Outlier.MaxEjectedPercent = 100 }, test.url, good.URL)
		c := r.dial(t)
		for range 20 {
			resp, _ := ask(t, c, get)
			wantStatus(t, resp, 200, "")
		}
		if n := r.metric(t, "ejections_total", "b1"); n != 1 {
			t.Errorf("%s: ejected %v times, want 1", test.name, n)
		}
	}
}

// A backend by TLS that closes a kept connection, or resets it, costs no
// request.
func TestBackendTLSStale(t *testing.T) {
	a := newAuthority(t)
	ca := newFiles(t).put("ca", a.pem())
	s := echoTLS(t, &tls.Config{Certificates: []tls.Certificate{a.pair("127.0.0.1")}})
	r := newDoor(t, func(g *plan) { g.pool.Backend.TLS.CAFile = ca }, s.URL)
	c := r.dial(t)
	for range 10 {
		resp, _ := ask(t, c, get)
		wantStatus(t, resp, 200, "")
		s.CloseClientConnections()
	}
}

func TestBackendIPv6(t *testing.T) {
	l, err := net.Listen("tcp6", "[::1]:0")
	if err != nil {
		t.Fatalf("loopback without IPv6: %v", err)
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(describe))
	s.Listener.Close()
	s.Listener = l
	s.Start()
	t.Cleanup(s.Close)
	r := newDoor(t, func(g *plan) { g.pool.Backend.Host = "backend" }, "http://"+l.Addr().String())
	resp, body := ask(t, r.dial(t), get)
	wantStatus(t, resp, 200, "")
	if !strings.Contains(body, "host="+l.Addr().String()+"\n") {
		t.Errorf("the backend saw %q", body)
	}
}

// A name with a dead IPv6 address and a good IPv4 one is reached by the second,
// long before the first times out.
func TestBackendDualStack(t *testing.T) {
	url := echo(t)
	_, port, _ := strings.Cut(strings.TrimPrefix(url, "http://"), ":")
	d := net.Dialer{
		FallbackDelay: 20 * time.Millisecond,
		Resolver:      &net.Resolver{PreferGo: true, Dial: nameServer(t, map[uint16][]byte{1: {127, 0, 0, 1}, 28: netip.IPv6Loopback().AsSlice()})},
		ControlContext: func(ctx context.Context, network, _ string, _ syscall.RawConn) error {
			if network == "tcp6" {
				<-ctx.Done() // a black hole
				return ctx.Err()
			}
			return nil
		},
	}
	r := newDoor(t, func(g *plan) {
		g.opt.Dial = d.DialContext
		g.opt.Resolve = func(ctx context.Context, host string) ([]netip.Addr, error) {
			return d.Resolver.LookupNetIP(ctx, "ip", host)
		}
		g.pool.Timeouts.Connect = doorWait
	}, "http://both.test:"+port)
	began := time.Now()
	resp, _ := ask(t, r.dial(t), get)
	wantStatus(t, resp, 200, "")
	if took := time.Since(began); took > doorWait/2 {
		t.Errorf("it took %v", took)
	}
}

// nameServer answers every question with one record of its type, where there
// is one.
func nameServer(t *testing.T, records map[uint16][]byte) func(context.Context, string, string) (net.Conn, error) {
	t.Helper()
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serve sync.WaitGroup
	serve.Go(func() {
		q := make([]byte, 1500)
		for {
			n, from, err := pc.ReadFrom(q)
			if err != nil {
				return
			}
			pc.WriteTo(reply(q[:n], records), from)
		}
	})
	t.Cleanup(func() { pc.Close(); serve.Wait() })
	return func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", pc.LocalAddr().String())
	}
}

// reply makes an answer of a question (RFC 1035, section 4).
func reply(q []byte, records map[uint16][]byte) []byte {
	end := 12
	for q[end] != 0 {
		end += int(q[end]) + 1
	}
	kind := binary.BigEndian.Uint16(q[end+1:])
	out := append([]byte{q[0], q[1], 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0}, q[12:end+5]...)
	if data := records[kind]; data != nil {
		out[7] = 1
		out = append(out, 0xc0, 12, byte(kind>>8), byte(kind), 0, 1, 0, 0, 0, 60, 0, byte(len(data)))
		out = append(out, data...)
	}
	return out
}

// moving is a name whose addresses a test changes.
type moving struct{ at atomic.Pointer[netip.Addr] }

func (m *moving) set(addr string) {
	if addr == "" {
		m.at.Store(nil)
		return
	}
	a := netip.MustParseAddr(addr)
	m.at.Store(&a)
}

func (m *moving) resolve(context.Context, string) ([]netip.Addr, error) {
	a := m.at.Load()
	if a == nil {
		return nil, &net.DNSError{Err: "server misbehaving", Name: "moving.test", IsTemporary: true}
	}
	return []netip.Addr{*a}, nil
}

// dial resolves names as a net.Dialer would.
func (m *moving) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	host, port, _ := net.SplitHostPort(addr)
	if _, err := netip.ParseAddr(host); err != nil {
		found, err := m.resolve(ctx, host)
		if err != nil {
			return nil, &net.OpError{Op: "dial", Net: network, Err: err}
		}
		host = found[0].String()
	}
	return (&net.Dialer{}).DialContext(ctx, network, net.JoinHostPort(host, port))
}

// A backend that moves to another address is found there; unused connections to
// the old one go, streams stay. While nobody knows where it is, it is where it
// was.
func TestBackendMoves(t *testing.T) {
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	next := make(chan struct{})
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		fmt.Fprintf(w, "at %v\n", q.Context().Value(http.LocalAddrContextKey))
		if q.URL.Path == "/stream" {
			w.(http.Flusher).Flush()
			<-next
			io.WriteString(w, "last")
		}
	}))
	s.Listener.Close()
	s.Listener = l
	s.Start()
	t.Cleanup(s.Close)
	_, port, _ := net.SplitHostPort(l.Addr().String())

	m := &moving{}
	m.set("127.0.0.2")
	r := newDoor(t, func(g *plan) {
		g.opt.Dial, g.opt.Resolve = m.dial, m.resolve
		g.tune = func(s *Server) { s.resolveEvery = 2 * time.Millisecond }
	}, "http://moving.test:"+port)
	is := func(addr string) {
		t.Helper()
		resp, body := ask(t, r.dial(t), get)
		wantStatus(t, resp, 200, "")
		if want := "at " + addr + ":" + port + "\n"; body != want {
			t.Errorf("answered %q, want %q", body, want)
		}
	}
	idle := func(n float64) {
		t.Helper()
		settles(t, func() string {
			if got := r.metric(t, "pool_connections", "idle"); got != n {
				return fmt.Sprintf("%v unused connections, want %v", got, n)
			}
			return ""
		})
	}
	streaming := r.dial(t)
	io.WriteString(streaming, "GET /stream HTTP/1.1\r\nHost: t.test\r\n\r\n")
	stream, err := http.ReadResponse(bufio.NewReader(streaming), nil)
	if err != nil {
		t.Fatal(err)
	}
	is("127.0.0.2")
	idle(1)

	m.set("127.0.0.3")
	idle(0)
	is("127.0.0.3")
	idle(1)

	m.set("")
	settles(t, func() string {
		if r.log.count("cannot be resolved") == 0 {
			return "nobody noticed"
		}
		return ""
	})
	idle(1)
	r.now.Load().pools["p"].of(r.now.Load().pools["p"].Backends()[0]).idle.DropRemote(func(net.Addr) bool { return true })
	is("127.0.0.3")

	close(next)
	if body, err := io.ReadAll(stream.Body); err != nil || !strings.HasSuffix(string(body), "last") {
		t.Errorf("the stream ended with %q, %v", body, err)
	}
}
