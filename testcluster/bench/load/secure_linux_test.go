package load

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"
)

func TestSecure(t *testing.T) {
	for _, c := range []struct {
		name           string
		fresh, again   bool
		tickets, wrong bool
		fault          string
	}{
		{name: "kept", tickets: true},
		{name: "a handshake each", fresh: true, tickets: true},
		{name: "resumed", fresh: true, again: true, tickets: true},
		{name: "not resumed", fresh: true, again: true, fault: "not resumed"},
		{name: "wrong body", tickets: true, wrong: true, fault: "differs"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				p := Pattern(200)
				if c.wrong {
					p[7]++
				}
				_, _ = w.Write(p)
			}))
			s.TLS = &tls.Config{SessionTicketsDisabled: !c.tickets}
			s.Config.ErrorLog = log.New(io.Discard, "", 0) // of clients that leave
			s.StartTLS()
			defer s.Close()
			roots := x509.NewCertPool()
			roots.AddCert(s.Certificate())
			x := Secure{
				Target: netip.MustParseAddrPort(s.Listener.Addr().String()), TLS: &tls.Config{RootCAs: roots, ServerName: "example.com"},
				Answer: 200, Conns: 4, Fresh: c.fresh, Warm: 100 * time.Millisecond, Measure: 300 * time.Millisecond, Mark: func() {},
			}
			if c.again {
				x.TLS.ClientSessionCache = tls.NewLRUClientSessionCache(64)
			}
			r, err := x.Run(t.Context(), NewClock())
			if c.fault != "" {
				if err == nil || !strings.Contains(err.Error(), c.fault) {
					t.Errorf("error %v, want one of %q", err, c.fault)
				}
				return
			}
			if err != nil || r.Requests == 0 || r.Bytes != int64(r.Requests)*200 || r.Reopened != 0 {
				t.Errorf("result %+v, %v", r, err)
			}
		})
	}
}
