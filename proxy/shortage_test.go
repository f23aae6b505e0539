package proxy_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"syscall"
	"testing"

	"github.com/starling-lb/starling/proxy"
	"github.com/starling-lb/starling/proxy/backend"
)

// A process without descriptors cannot connect: that takes no backend out.
func TestOwnShortageBlamesNobody(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want backend.State
	}{
		{syscall.EMFILE, backend.Active},
		{syscall.ECONNREFUSED, backend.Ejected},
	} {
		t.Run(tc.err.Error(), func(t *testing.T) {
			edit := func(c *proxy.PoolConfig) {
				second := c.Backends[0]
				second.ID, second.URL = "b2", "http://127.0.0.1:9"
				c.Backends = append(c.Backends, second)
				c.Outlier.ConsecutiveFailures = 1
			}
			dial := func(context.Context, string, string) (net.Conn, error) {
				return nil, &net.OpError{Op: "dial", Err: errors.Join(tc.err)}
			}
			r := newRigDialing(t, false, dial, edit)
			if head := r.connect("GET / HTTP/1.1\r\nHost: t\r\n\r\n").answer(); !strings.HasPrefix(head, "HTTP/1.1 502 ") {
				t.Errorf("answered %q", head)
			}
			worst := backend.Active
			for _, b := range r.server.Pools()[0].Backends() {
				if s := b.Standing().State; s != backend.Active {
					worst = s
				}
			}
			if worst != tc.want {
				t.Errorf("a backend is %s, want %s", worst, tc.want)
			}
		})
	}
}
