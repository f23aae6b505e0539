package proxy

import (
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// once is a backend by TLS that closes after each answer, which says whether
// the connection took up a session.
func once(t *testing.T, a *authority) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("Connection", "close")
		fmt.Fprintf(w, "%v", q.TLS.DidResume)
	}))
	s.TLS = &tls.Config{Certificates: []tls.Certificate{a.pair("b.test", "127.0.0.1")}, NextProtos: []string{"http/1.1"}}
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// New connections to a backend take up the session of the last one; each
// backend's is its own, also where all go by one name. New authorities end them.
func TestBackendTLSResumes(t *testing.T) {
	a := newAuthority(t)
	f := newFiles(t)
	ca := f.put("ca", a.pem())
	r := newDoor(t, func(g *plan) {
		g.pool.Backend.TLS = BackendTLS{CAFile: ca, ServerName: "b.test"}
		g.pool.Headers.ExposeBackend = true
		g.tune = func(s *Server) { s.keysEvery = 5 * time.Millisecond }
	}, once(t, a).URL, once(t, a).URL)
	c := r.dial(t)
	met := map[string]int{}
	for met["b1"] < 5 || met["b2"] < 5 {
		resp, body := ask(t, c, get)
		wantStatus(t, resp, 200, "")
		b := resp.Header.Get("X-Starling-Backend")
		if want := fmt.Sprint(met[b] > 0); body != want {
			t.Fatalf("connection %d to %s resumed: %s, want %s", met[b]+1, b, body, want)
		}
		met[b]++
	}

	f.put("ca", append(newAuthority(t).pem(), a.pem()...))
	settles(t, func() string {
		if r.log.count("new certificates in force") == 0 {
			return "the new authorities are not in force"
		}
		return ""
	})
	resp, body := ask(t, c, get)
	wantStatus(t, resp, 200, "")
	if body != "false" {
		t.Error("a session outlived the authorities that it was checked by")
	}
}

// Upgraded connections by TLS on both sides end between two frames too, when a
// drain is over; what they hear last is no reset.
func TestDrainPartsWebSocketsByTLS(t *testing.T) {
	const (
		ask1  = "GET /chat HTTP/1.1\r\nHost: t.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
		text  = "\x81\x05hello"
		going = "\x88\x02\x03\xe9"
	)
	a := newAuthority(t)
	f := newFiles(t)
	rest, heard := make(chan struct{}), make(chan string, 1)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		c, out, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(doorWait))
		out.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n" + text[:4])
		out.Flush()
		<-rest
		out.WriteString(text[4:] + text)
		out.Flush()
		all, err := io.ReadAll(out)
		if err != nil {
			t.Errorf("the backend's end: %v", err)
		}
		heard <- string(all)
	}))
	s.TLS = &tls.Config{Certificates: []tls.Certificate{a.pair("127.0.0.1")}, NextProtos: []string{"http/1.1"}}
	s.StartTLS()
	t.Cleanup(s.Close)
	r := newDoor(t, func(g *plan) {
		secured(t, a)(g)
		g.pool.Backend.TLS.CAFile = f.put("ca", a.pem())
	}, s.URL)
	c := r.dialTLS(t, trusting(a))
	io.WriteString(c, ask1)
	want := "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
	expect := func(want string) {
		t.Helper()
		got := make([]byte, len(want))
		if n, err := io.ReadFull(c, got); err != nil || string(got) != want {
			t.Fatalf("got %q, %v, want %q", got[:n], err, want)
		}
	}
	expect(want)
	for line := make([]byte, 1); ; want += string(line) { // Date may stand in between
		if _, err := io.ReadFull(c, line); err != nil {
			t.Fatal(err)
		}
		if n := len(want); n > 4 && want[n-3:]+string(line) == "\r\n\r\n" {
			break
		}
	}
	expect(text[:4])
	report := make(chan Report, 1)
	go func() { report <- r.Stop(ended()) }()
	settles(t, func() string {
		if !r.stopping.Load() {
			return "the drain is not over"
		}
		return ""
	})
	close(rest)
	expect(text[4:] + going)
	if more, err := io.ReadAll(c); err != nil || len(more) > 0 {
		t.Errorf("behind the close frame: %q, %v", more, err)
	}
	c.Close()
	if frame := got(t, "the backend's close frame", heard); len(frame) != 8 || frame[:2] != "\x88\x82" {
		t.Errorf("the backend heard %q, want a masked close frame", frame)
	}
	if done := got(t, "the report", report); done != (Report{Cut: 1}) {
		t.Errorf("the report is %+v, want one stream cut", done)
	}
}

