package proxy

import (
	"bufio"
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// Upgraded connections by TLS on both sides end between two frames too, when a
// drain is over; what they hear last is no reset.
func TestDrainPartsWebSocketsByTLS(t *testing.T) {
	const (
		request = "GET /chat HTTP/1.1\r\nHost: t.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
		text    = "\x81\x05hello"
		going   = "\x88\x02\x03\xe9"
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
		g.tune = func(s *Server) { s.partTime = doorWait }
	}, s.URL)
	c := r.dialTLS(t, trusting(a))
	io.WriteString(c, request)
	in := bufio.NewReader(c)
	if resp, err := http.ReadResponse(in, nil); err != nil || resp.StatusCode != 101 {
		t.Fatalf("the handshake: %v", err)
	}
	expect := func(want string) {
		t.Helper()
		got := make([]byte, len(want))
		if n, err := io.ReadFull(in, got); err != nil || string(got) != want {
			t.Fatalf("got %q, %v, want %q", got[:n], err, want)
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
	if more, err := io.ReadAll(in); err != nil || len(more) > 0 {
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
