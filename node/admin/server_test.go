package admin

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/starling-lb/starling/node/api"
)

func TestStopClosesQuietConnections(t *testing.T) {
	s := newRig().start(t)
	fresh, kept := dial(t, s), dial(t, s)
	send(t, kept, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
	if got := receive(t, kept); got.StatusCode != 200 || got.Close {
		t.Fatalf("status %d, close %v: want a connection that is kept", got.StatusCode, got.Close)
	}
	send(t, kept, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
	receive(t, kept)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := s.Stop(ctx); err != nil {
		t.Errorf("stop: %v", err)
	}
	wantClosed(t, fresh)
	wantClosed(t, kept)
	if err := s.Stop(ctx); err != nil {
		t.Errorf("second stop: %v", err)
	}
	if _, err := net.Dial("tcp", s.Addr().String()); err == nil {
		t.Error("it still listens")
	}
	if err := s.Start(t.Context()); err == nil {
		t.Error("a stopped server started again")
	}
}

func TestStopLetsARequestEnd(t *testing.T) {
	r := newRig()
	r.node.entered, r.node.leave = make(chan struct{}, 1), make(chan struct{})
	s := r.start(t)
	c := dial(t, s)
	send(t, c, "GET /v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n")
	<-r.node.entered
	stopped := make(chan error, 1)
	go func() { stopped <- s.Stop(context.Background()) }()
	<-s.ctx.Done()
	close(r.node.leave)
	if got := receive(t, c); got.StatusCode != 200 || !got.Close {
		t.Errorf("status %d, close %v: want 200 and the connection's end announced", got.StatusCode, got.Close)
	}
	wantClosed(t, c)
	if err := <-stopped; err != nil {
		t.Errorf("stop: %v", err)
	}
}

func TestStopCutsWhatDoesNotEnd(t *testing.T) {
	r := newRig()
	r.node.entered = make(chan struct{}, 1)
	long := strings.Repeat("x", 4<<10)
	for range 8 << 10 { // 32 MiB, more than sockets hold
		r.node.streams.Streams = append(r.node.streams.Streams, api.Stream{Client: long})
	}
	s := r.start(t)
	c := dial(t, s)
	send(t, c, "GET /v1/streams?limit=10000 HTTP/1.1\r\nHost: localhost\r\n\r\n")
	<-r.node.entered
	ctx, cancel := context.WithCancelCause(t.Context())
	late := errors.New("time is up")
	cancel(late)
	if err := s.Stop(ctx); !errors.Is(err, late) || !strings.Contains(err.Error(), "1 requests cut") {
		t.Errorf("stop: %v, want one request cut", err)
	}
	if n, err := io.Copy(io.Discard, c); n >= 32<<20 {
		t.Errorf("all %d bytes came, %v", n, err)
	}
}

func TestStopEndsAProfile(t *testing.T) {
	r := newRig()
	r.cfg.Pprof = true
	s := r.start(t)
	first, second := dial(t, s), dial(t, s)
	for _, c := range []net.Conn{first, second} { // whichever comes second is refused
		send(t, c, "GET /debug/pprof/profile?seconds=60 HTTP/1.1\r\nHost: localhost\r\n\r\n")
	}
	type answer struct {
		reply
		err error
	}
	answers := make(chan answer, 2)
	for _, c := range []net.Conn{first, second} {
		go func() {
			var head [12]byte
			_, err := io.ReadFull(c, head[:])
			answers <- answer{reply{body: string(head[:])}, err}
		}()
	}
	if got := <-answers; got.err != nil || got.body != "HTTP/1.1 409" {
		t.Errorf("a second profile is answered %q, %v", got.body, got.err)
	}
	if err := s.Stop(context.Background()); err != nil {
		t.Errorf("stop: %v", err)
	}
	if got := <-answers; got.err != nil || got.body != "HTTP/1.1 200" {
		t.Errorf("the profile that was cut short is answered %q, %v", got.body, got.err)
	}
}

func TestStopBeforeStart(t *testing.T) {
	s := decide(t, Config{Address: "127.0.0.1:0"})
	if s.Addr() != nil {
		t.Errorf("address before start: %v", s.Addr())
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Errorf("stop: %v", err)
	}
}

func TestStartFails(t *testing.T) {
	opt := newRig().options()
	busy := errors.New("address in use")
	opt.Listen = func(context.Context, string, string) (net.Listener, error) { return nil, busy }
	s, err := New(Config{Address: "127.0.0.1:9901"}, opt)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(t.Context()); !errors.Is(err, busy) {
		t.Errorf("start: %v, want %v", err, busy)
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Errorf("stop: %v", err)
	}
}

// flaky fails its first accept.
type flaky struct {
	net.Listener
	failed bool
}

func (f *flaky) Accept() (net.Conn, error) {
	if !f.failed {
		f.failed = true
		return nil, errors.New("too many open files")
	}
	return f.Listener.Accept()
}

func TestAcceptIsTriedAgain(t *testing.T) {
	r := newRig()
	r.tune = func(s *Server) {
		listen := s.opt.Listen
		s.opt.Listen = func(ctx context.Context, network, address string) (net.Listener, error) {
			ln, err := listen(ctx, network, address)
			return &flaky{Listener: ln}, err
		}
	}
	s := r.start(t)
	if got := ask(t, s, "GET /healthz"); got.StatusCode != 200 {
		t.Errorf("status %d", got.StatusCode)
	}
	if !strings.Contains(r.log.String(), "too many open files") {
		t.Errorf("the log does not tell:\n%s", r.log)
	}
}

func TestLimits(t *testing.T) {
	r := newRig()
	r.tune = func(s *Server) { s.http.ReadTimeout = 50 * time.Millisecond }
	s := r.start(t)
	const head = "GET /v1/status HTTP/1.1\r\nHost: localhost\r\n"
	for name, c := range map[string]struct {
		request string
		code    Code
		words   string
	}{
		"large head":         {head + "X: " + strings.Repeat("x", maxHeader) + "\r\n\r\n", HeaderTooLarge, "16384"},
		"large body":         {"POST /v1/status HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1048577\r\n\r\n", BodyTooLarge, "1048576"},
		"slow head":          {"GET /v1/st", RequestTimeout, "50ms"},
		"slow body":          {head + "Content-Length: 5\r\n\r\nabc", RequestTimeout, "50ms"},
		"silence":            {"", RequestTimeout, "50ms"},
		"unexpected body":    {head + "Content-Length: 2\r\n\r\n{}", BadRequest, "takes no body"},
		"unexpected chunks":  {head + "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", BadRequest, "takes no body"},
		"two lengths":        {head + "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", BadRequest, "not a valid HTTP/1.1 request"},
		"no Host":            {"GET /v1/status HTTP/1.1\r\n\r\n", BadRequest, "not a valid HTTP/1.1 request"},
		"no HTTP":            {"\x16\x03\x01\r\n\r\n", BadRequest, "not a valid HTTP/1.1 request"},
		"percent in a path":  {"GET /v1/%zz HTTP/1.1\r\nHost: localhost\r\n\r\n", BadRequest, "/v1/%zz"},
		"asterisk":           {"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n", NotFound, `"*"`},
		"secret in bad head": {head + "Authorization : Bearer s3cret\r\n\r\n", BadRequest, ""},
	} {
		t.Run(name, func(t *testing.T) {
			conn := dial(t, s)
			send(t, conn, "%s", c.request)
			got := receive(t, conn)
			got.wantError(t, c.code, c.words)
			if strings.Contains(got.body, "s3cret") {
				t.Errorf("the answer holds a token: %s", got.body)
			}
		})
	}
	if log := r.log.String(); strings.Contains(log, "s3cret") {
		t.Errorf("the log holds a token:\n%s", log)
	}
}

func TestTooManyConnections(t *testing.T) {
	r := newRig()
	r.tune = func(s *Server) { s.conns.max = 1 }
	s := r.start(t)
	first := dial(t, s)
	send(t, first, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
	receive(t, first)
	second := dial(t, s)
	receive(t, second).wantError(t, TooManyConnections, "1 connections")
	wantClosed(t, second)

	first.Close()
	for deadline := time.Now().Add(patience); ; { // until the server has noticed
		if got := health(t, s); got == 200 {
			break
		} else if time.Now().After(deadline) {
			t.Fatalf("no room after the first connection is gone: status %d", got)
		}
	}
}

// health asks once and tells the status, 0 if there was no answer.
func health(t *testing.T, s *Server) int {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
	resp, err := client.Get("http://" + s.Addr().String() + "/healthz")
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	return resp.StatusCode
}

func TestTLS(t *testing.T) {
	r := newRig()
	var pool *x509.CertPool
	r.cfg.TLS.CertFile, r.cfg.TLS.KeyFile, pool = certificate(t)
	s := r.start(t)
	get := func(most uint16) (string, error) {
		client := http.Client{
			Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS10, MaxVersion: most}},
			Timeout:   patience,
		}
		resp, err := client.Get("https://" + s.Addr().String() + "/healthz")
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		return string(body), err
	}
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		if body, err := get(version); body != "ok\n" || err != nil {
			t.Errorf("%s: %q, %v", tls.VersionName(version), body, err)
		}
	}
	if _, err := get(tls.VersionTLS11); err == nil {
		t.Error("TLS 1.1 is served")
	}
	plain := dial(t, s)
	send(t, plain, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
	if text, _ := io.ReadAll(plain); strings.Contains(string(text), "ok") {
		t.Errorf("plain HTTP is served: %q", text)
	}
	dial(t, s) // never shakes hands; Stop must not wait for it
}

func TestWarnsOfTokenInClear(t *testing.T) {
	r := newRig()
	r.cfg = Config{Address: "0.0.0.0:0", TokenFile: file(t, "s3cret")}
	r.tune = func(s *Server) { // not on the network: as if it were
		listen := s.opt.Listen
		s.opt.Listen = func(ctx context.Context, network, _ string) (net.Listener, error) {
			return listen(ctx, network, "127.0.0.1:0")
		}
	}
	r.start(t)
	if !strings.Contains(r.log.String(), "level=WARN") || !strings.Contains(r.log.String(), "in clear") {
		t.Errorf("no warning:\n%s", r.log)
	}
}

// certificate makes a key pair for 127.0.0.1 that signs itself.
func certificate(t *testing.T) (certFile, keyFile string, pool *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	pool = x509.NewCertPool()
	pool.AppendCertsFromPEM(certPEM)
	return file(t, string(certPEM)), file(t, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}))), pool
}
