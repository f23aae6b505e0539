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

// closing is a backend by TLS that closes after each answer, which says whether
// the connection took up a session.
func closing(t *testing.T, a *authority) *httptest.Server {
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
	}, closing(t, a).URL, closing(t, a).URL)
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
