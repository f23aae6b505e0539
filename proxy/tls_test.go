package proxy

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/starling-lb/starling/proxy/backend"
)

// dialTLS connects a client and completes the handshake.
func (r *door) dialTLS(t *testing.T, config *tls.Config) *tls.Conn {
	t.Helper()
	c := tls.Client(r.dial(t), config)
	if err := c.Handshake(); err != nil {
		t.Fatal(err)
	}
	return c
}

func trusting(a *authority) *tls.Config { return &tls.Config{RootCAs: a.pool(), ServerName: "t.test"} }

func secured(t *testing.T, a *authority) func(*plan) {
	keys := newFiles(t).serve(a)
	return func(g *plan) { g.listener.TLS = keys }
}

func TestTLS(t *testing.T) {
	a := newAuthority(t)
	r := newDoor(t, secured(t, a), echo(t))
	config := trusting(a)
	config.NextProtos = []string{"h2", "http/1.1"}
	config.ClientSessionCache = tls.NewLRUClientSessionCache(1)
	for _, resumed := range []bool{false, true} {
		c := r.dialTLS(t, config)
		for range 3 {
			resp, body := ask(t, c, get)
			wantStatus(t, resp, 200, "")
			if want := "x-forwarded-for=127.0.0.1\nx-forwarded-proto=https\nx-forwarded-host=t.test\n"; !strings.HasSuffix(body, want) {
				t.Fatalf("the backend saw %q, want %q", body, want)
			}
		}
		if s := c.ConnectionState(); s.NegotiatedProtocol != "http/1.1" || s.DidResume != resumed {
			t.Errorf("protocol %q, resumed %v; want http/1.1, %v", s.NegotiatedProtocol, s.DidResume, resumed)
		}
		c.Close()
	}
	if n := r.metric(t, "tls_certificate_expires_seconds"); n < float64(time.Now().Unix()) {
		t.Errorf("the certificate expires at %v", n)
	}
}

// What TLS refuses is closed and counted; who only knocks is not.
func TestTLSRefused(t *testing.T) {
	a := newAuthority(t)
	r := newDoor(t, secured(t, a), echo(t))
	for name, change := range map[string]func(*tls.Config){
		"old version":       func(c *tls.Config) { c.MaxVersion = tls.VersionTLS11; c.MinVersion = tls.VersionTLS10 },
		"HTTP/2 alone":      func(c *tls.Config) { c.NextProtos = []string{"h2"} },
		"an unknown signer": func(c *tls.Config) { c.RootCAs = newAuthority(t).pool() },
	} {
		before := r.metric(t, "tls_handshake_errors_total", r.addr)
		config := trusting(a)
		change(config)
		c := tls.Client(r.dial(t), config)
		if err := c.Handshake(); err == nil {
			t.Errorf("%s: the handshake came about", name)
		}
		c.Close()
		settles(t, func() string {
			if got := r.metric(t, "tls_handshake_errors_total", r.addr); got != before+1 {
				return fmt.Sprintf("%s: %v handshake errors, want %v", name, got, before+1)
			}
			return ""
		})
	}
	before := r.metric(t, "tls_handshake_errors_total")
	knock := r.dial(t)
	knock.CloseWrite()
	closed(t, knock)
	if got := r.metric(t, "tls_handshake_errors_total"); got != before {
		t.Errorf("a connection without a byte: %v handshake errors, want %v", got, before)
	}
}

func TestTLSMutual(t *testing.T) {
	a, clients := newAuthority(t), newAuthority(t)
	f := newFiles(t)
	keys := f.serve(a)
	keys.ClientCAFile = f.put("ca", clients.pem())
	r := newDoor(t, func(g *plan) { g.listener.TLS = keys }, echo(t))
	for name, test := range map[string]struct {
		shown []tls.Certificate
		good  bool
	}{
		"none":           {nil, false},
		"the right one":  {[]tls.Certificate{clients.pair("client")}, true},
		"another signer": {[]tls.Certificate{a.pair("client")}, false},
	} {
		config := trusting(a)
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			if test.shown == nil {
				return &tls.Certificate{}, nil
			}
			return &test.shown[0], nil
		}
		c := tls.Client(r.dial(t), config)
		_, err := io.WriteString(c, get)
		if err == nil {
			_, err = http.ReadResponse(bufio.NewReader(c), nil)
		}
		if (err == nil) != test.good {
			t.Errorf("%s: %v", name, err)
		}
		c.Close()
	}
}

func TestTLSAskedInClear(t *testing.T) {
	r := newDoor(t, secured(t, newAuthority(t)), echo(t))
	c := r.dial(t)
	resp, body := ask(t, c, "POST /v1 HTTP/1.1\r\nHost: t.test\r\nContent-Length: 3\r\n\r\nabc")
	wantStatus(t, resp, 400, backend.BadRequest)
	if !strings.Contains(body, "https") || !strings.Contains(body, `"code":"bad_request"`) {
		t.Errorf("told %q", body)
	}
	c.CloseWrite()
	closed(t, c)
	noise := r.dial(t)
	noise.Write([]byte("\x00\x01\x02\x03\x04\x05"))
	if got := closed(t, noise); strings.Contains(got, "HTTP") {
		t.Errorf("noise was told %q", got)
	}
}

// A client that takes its time over the handshake has as long as for a head.
func TestTLSHandshakeTime(t *testing.T) {
	secure := secured(t, newAuthority(t))
	r := newDoor(t, func(g *plan) { secure(g); g.cfg.Timeouts.RequestHeader = 50 * time.Millisecond }, echo(t))
	for _, sent := range []string{"", "\x16\x03\x01\x02\x00\x01\x00\x01"} {
		c := r.dial(t)
		io.WriteString(c, sent)
		closed(t, c)
	}
	if n := r.metric(t, "timeouts_total", "request_header"); n != 2 {
		t.Errorf("%v time-outs, want 2", n)
	}
}

// A stop does not wait for handshakes that do not come to their end.
func TestTLSStopInHandshake(t *testing.T) {
	secure := secured(t, newAuthority(t))
	for _, relayed := range []bool{false, true} {
		r := newDoor(t, func(g *plan) {
			secure(g)
			g.listener.ProxyProtocol, g.listener.TrustedProxies = relayed, []string{"127.0.0.0/8"}
			g.cfg.Timeouts.RequestHeader = time.Hour
		}, echo(t))
		c := r.dial(t)
		io.WriteString(c, "P")
		settles(t, func() string {
			if r.metric(t, "client_connections") == 0 {
				return "not accepted"
			}
			return ""
		})
		began, now := time.Now(), ended()
		if r.Stop(now); time.Since(began) > 5*time.Second {
			t.Errorf("relayed %v: the stop took %v", relayed, time.Since(began))
		}
		closed(t, c)
	}
}

// New certificates come into force while handshakes go on without one failing;
// broken ones do not, and are told once.
func TestTLSReload(t *testing.T) {
	a, f := newAuthority(t), newFiles(t)
	keys := f.serve(a)
	r := newDoor(t, func(g *plan) {
		g.listener.TLS = keys
		g.tune = func(s *Server) { s.keysEvery = 5 * time.Millisecond }
	}, echo(t))
	over := make(chan struct{})
	var seen sync.Map
	var load sync.WaitGroup
	for range 4 {
		load.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
				}
				c, err := tls.Dial("tcp", r.addr, trusting(a))
				if err != nil {
					t.Errorf("handshake: %v", err)
					return
				}
				seen.Store(c.ConnectionState().PeerCertificates[0].SerialNumber.Int64(), true)
				c.Close()
			}
		})
	}
	until := func(what string, good float64, serial int64) {
		t.Helper()
		seen.Clear()
		settles(t, func() string {
			if got := r.metric(t, "tls_reload_success"); got != good {
				return fmt.Sprintf("%s: tls_reload_success is %v", what, got)
			}
			if _, ok := seen.Load(serial); !ok {
				return fmt.Sprintf("%s: nobody sees certificate %d", what, serial)
			}
			return ""
		})
	}
	until("at first", 1, a.next-1)
	for range 3 {
		f.serve(a)
		until("a new one", 1, a.next-1)
	}
	const broken = "certificate files cannot be used"
	if n := r.log.count(broken); n > 3 { // the moment between two files may last for two looks
		t.Errorf("%d warnings for good files", n)
	}
	before := r.log.count(broken)
	f.put("key", []byte("nonsense"))
	until("a broken one", 0, a.next-1)
	f.serve(a)
	until("mended", 1, a.next-1)
	if n := r.log.count(broken); n < before+1 || n > before+2 {
		t.Errorf("%d warnings for one broken file", n-before)
	}
	close(over)
	load.Wait()
}

// An answer that is broken off must not look complete: not to be told by its
// framing, it is told by a reset.
func TestTLSBrokenOff(t *testing.T) {
	a := newAuthority(t)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		c, out, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		io.WriteString(out, "HTTP/1.1 200 OK\r\n\r\npart")
		out.Flush()
		if c.(*net.TCPConn).SetLinger(0) == nil {
			c.Close()
		}
	}))
	t.Cleanup(s.Close)
	r := newDoor(t, secured(t, a), s.URL)
	c := r.dialTLS(t, trusting(a))
	io.WriteString(c, get)
	if got, err := io.ReadAll(c); err == nil {
		t.Errorf("a clean end after %q", got)
	}
}

func TestTLSLimits(t *testing.T) {
	a := newAuthority(t)
	secure := secured(t, a)
	r := newDoor(t, func(g *plan) {
		secure(g)
		g.cfg.Timeouts.RequestHeader = 200 * time.Millisecond
		g.listener.MaxRequestHeader = 1 << 10
		g.pool.Limits.MaxRequestBody = 100
	}, echo(t))
	for _, test := range []struct {
		name, request string
		status        int
		code          backend.Code
	}{
		{"head", "GET / HTTP/1.1\r\nHost: t.test\r\nX: " + strings.Repeat("x", 1<<10) + "\r\n\r\n", 431, backend.HeaderTooLarge},
		{"body", "POST / HTTP/1.1\r\nHost: t.test\r\nContent-Length: 101\r\n\r\n", 413, backend.BodyTooLarge},
		{"chunked body", "POST / HTTP/1.1\r\nHost: t.test\r\nTransfer-Encoding: chunked\r\n\r\n65\r\n" + strings.Repeat("x", 101) + "\r\n0\r\n\r\n", 413, backend.BodyTooLarge},
		{"slow head", "GET / HTTP/1.1\r\n", 408, backend.RequestTimeout},
		{"no HTTP", "hello\r\n\r\n", 400, backend.BadRequest},
	} {
		t.Run(test.name, func(t *testing.T) {
			resp, _ := ask(t, r.dialTLS(t, trusting(a)), test.request)
			wantStatus(t, resp, test.status, test.code)
		})
	}
}

// A client by TLS that leaves frees its backend, however it leaves.
func TestTLSClientLeaves(t *testing.T) {
	a := newAuthority(t)
	begun, left := make(chan struct{}, 1), make(chan struct{}, 1)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		io.Copy(io.Discard, q.Body)
		w.(http.Flusher).Flush()
		begun <- struct{}{}
		<-q.Context().Done()
		left <- struct{}{}
	}))
	t.Cleanup(s.Close)
	r := newDoor(t, secured(t, a), s.URL)
	leave := func(how string) time.Duration {
		tcp := r.dial(t)
		c := tls.Client(tcp, trusting(a))
		if how == "close_notify behind a body" {
			io.WriteString(c, "POST / HTTP/1.1\r\nHost: t.test\r\nContent-Length: 100000\r\n\r\n"+strings.Repeat("x", 100000))
		} else {
			io.WriteString(c, get)
		}
		got(t, "the request", begun)
		from := time.Now()
		switch how {
		case "FIN":
			c.Close()
		case "RST":
			tcp.SetLinger(0)
			tcp.Close()
		default:
			c.CloseWrite() // TCP stays open
		}
		got(t, how+": the backend's connection closed", left)
		return time.Since(from)
	}
	for _, how := range []string{"FIN", "RST", "close_notify", "close_notify behind a body"} {
		best := time.Hour
		for try := 0; try < 10 && best > 50*time.Millisecond; try++ { // a busy machine may spoil some
			best = min(best, leave(how))
		}
		if best > 50*time.Millisecond {
			t.Errorf("%s: the backend was free after %v at the earliest", how, best)
		}
	}
}

// Large bodies cross whole, both ways at once.
func TestTLSBodies(t *testing.T) {
	const size = 3 << 20
	a := newAuthority(t)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		http.NewResponseController(w).EnableFullDuplex()
		io.Copy(w, q.Body)
	}))
	t.Cleanup(s.Close)
	r := newDoor(t, secured(t, a), s.URL)
	text := strings.Repeat("0123456789abcde\n", size/16)
	for range 2 {
		c := r.dialTLS(t, trusting(a)) // one each: an answer that begins before its request's end ends the connection
		var send sync.WaitGroup
		send.Go(func() {
			io.WriteString(c, fmt.Sprintf("POST / HTTP/1.1\r\nHost: t.test\r\nContent-Length: %d\r\n\r\n%s", size, text))
		})
		if resp, body := answer(t, bufio.NewReader(c)); resp.StatusCode != 200 || body != text {
			t.Errorf("status %d, %d bytes", resp.StatusCode, len(body))
		}
		send.Wait()
	}
}
