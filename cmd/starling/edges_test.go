package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// edge is a listener as a client sees it.
type edge struct {
	addr    string
	config  *tls.Config // nil: none
	proxied bool        // who connects says whom it stands for
}

// visitor is whom it says.
const visitor = "192.0.2.7"

// reach connects, and asks for a path; it tells whether the client was known by TLS.
func (e *edge) reach(path string) (c net.Conn, resp *http.Response, known bool, err error) {
	if c, err = net.Dial("tcp", e.addr); err != nil {
		return nil, nil, false, err
	}
	_ = c.SetDeadline(time.Now().Add(dayLimit))
	if e.proxied {
		fmt.Fprintf(c, "PROXY TCP4 %s 127.0.0.1 1111 80\r\n", visitor)
	}
	if e.config != nil {
		secure := tls.Client(c, e.config)
		if err = secure.Handshake(); err != nil {
			return c, nil, false, err
		}
		c, known = secure, secure.ConnectionState().DidResume
	}
	fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", path)
	resp, err = http.ReadResponse(bufio.NewReader(c), nil)
	return c, resp, known, err
}

// ask is one request on a connection of its own. Its answer must be whole, and say who
// asked.
func (e *edge) ask() (known bool, err error) {
	c, resp, known, err := e.reach("/")
	if c != nil {
		defer c.Close()
	}
	if err != nil {
		return known, err
	}
	text, err := io.ReadAll(resp.Body)
	who, scheme := "127.0.0.1", "http"
	if e.proxied {
		who = visitor
	}
	if e.config != nil {
		scheme = "https"
	}
	if want := fmt.Sprintf("%s by %s\n", who, scheme); err == nil && string(text) != want {
		err = fmt.Errorf("%s with %q, want %q", resp.Status, text, want)
	}
	return known, err
}

// stream is a long one; it must end whole.
func (e *edge) stream(begun func()) error {
	c, resp, _, err := e.reach("/events")
	if c != nil {
		defer c.Close()
	}
	begun()
	if err != nil {
		return err
	}
	text, err := io.ReadAll(resp.Body)
	if err == nil && !strings.HasSuffix(string(text), "data: [DONE]\n\n") {
		err = fmt.Errorf("ended after %q", tail(string(text)))
	}
	return err
}

// ground is a backend that says who asked, and has event streams until they may end.
func ground(t *testing.T, end chan struct{}) *httptest.Server {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Path == "/events" {
			(&day{over: end}).serve(w, q)
			return
		}
		fmt.Fprintf(w, "%s by %s\n", q.Header.Get("X-Forwarded-For"), q.Header.Get("X-Forwarded-Proto"))
	}))
	t.Cleanup(s.Close)
	return s
}

// certificate puts one into files, and returns what trusts it.
func certificate(t *testing.T, dir string) (cert, key string, trust *x509.CertPool) {
	t.Helper()
	s := httptest.NewTLSServer(nil) // has one
	defer s.Close()
	private, err := x509.MarshalPKCS8PrivateKey(s.TLS.Certificates[0].PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	trust = x509.NewCertPool()
	trust.AddCert(s.Certificate())
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for name, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: s.Certificate().Raw}, key: {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(name, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key, trust
}

// TestUpgradeOfEdges: listeners with TLS, with the PROXY protocol and with both are
// upgraded twice. Streams go on that began before, nobody who connects meanwhile is
// refused, and who was known by TLS still is.
func TestUpgradeOfEdges(t *testing.T) {
	t.Parallel()
	p, end := newProcess(t), make(chan struct{})
	over := sync.OnceFunc(func() { close(end) })
	t.Cleanup(over)
	cert, key, trust := certificate(t, p.dir)
	secure := fmt.Sprintf("tls: {cert_file: %s, key_file: %s}", cert, key)
	const proxied = "proxy_protocol: true, trusted_proxies: [127.0.0.0/8]"
	p.configure(`log: {level: info}
node: {name: n1, data_dir: %s/data, drain_timeout: 5m}
admin: {address: 127.0.0.1:0}
listeners:
  - {address: 127.0.0.1:0, %s}
  - {address: 127.0.0.1:0, %s}
  - {address: 127.0.0.1:0, %s, %s}
pools:
  p: {backends: [{id: b1, url: %q}], health: {enabled: false}, backend: {engine: none}}
`, p.dir, secure, proxied, secure, proxied, ground(t, end).URL)
	p.start()
	all := regexp.MustCompile(`(?m)^ready proxy=(\S+) `).FindStringSubmatch(p.log())
	addrs := strings.Split(all[1], ",")
	known := func() *tls.Config {
		return &tls.Config{RootCAs: trust, ServerName: "example.com", ClientSessionCache: tls.NewLRUClientSessionCache(4)}
	}
	edges := []*edge{{addrs[0], known(), false}, {addrs[1], nil, true}, {addrs[2], known(), true}}
	var streams, load sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var asked atomic.Int64
	for i, e := range edges {
		load.Go(func() {
			others := &edge{e.addr, nil, e.proxied}
			if e.config != nil {
				others.config = known()
			}
			tick := time.NewTicker(pace)
			defer tick.Stop()
			for ctx.Err() == nil {
				if _, err := others.ask(); err != nil {
					t.Errorf("a request at listener %d: %v", i+1, err)
					return
				}
				asked.Add(1)
				<-tick.C
			}
		})
		if known, err := e.ask(); known || err != nil {
			t.Errorf("the first at listener %d: known %v, %v", i+1, known, err)
		}
	}
	for range 2 {
		for i, e := range edges {
			begun := make(chan struct{})
			streams.Go(func() {
				if err := e.stream(sync.OnceFunc(func() { close(begun) })); err != nil {
					t.Errorf("a stream at listener %d: %v", i+1, err)
				}
			})
			<-begun
		}
		p.upgraded(func() {
			if code, said := p.command("upgrade"); code != 0 {
				t.Errorf("exit %d, %s", code, said)
			}
		})
		for i, e := range edges {
			if known, err := e.ask(); err != nil || known != (e.config != nil) {
				t.Errorf("after the upgrade, at listener %d: known %v, %v", i+1, known, err)
			}
		}
	}
	stop()
	load.Wait()
	if n := asked.Load(); n < 12 {
		t.Errorf("only %d requests went by", n)
	}
	if s, err := p.status(); err != nil || s.Streams.InFlight != 6 || len(s.Elders) != 2 {
		t.Errorf("%+v with elders %v, %v", s.Streams, s.Elders, err)
	}
	over()
	streams.Wait()
	within(t, dayLimit, p.alone)
}
