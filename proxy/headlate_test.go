package proxy_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/starling-lb/starling/proxy"
	"github.com/starling-lb/starling/proxy/backend"
)

// response_header counts from the last byte of the request: a long upload is
// no fault of the backend, its silence afterwards is.
func TestResponseHeaderCountsFromTheLastByte(t *testing.T) {
	const wait = 300 * time.Millisecond
	edit := func(c *proxy.PoolConfig) { c.Timeouts.ResponseHeader = wait }
	onEachLoop(t, edit, func(r *rig) {
		client := r.connect("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 4\r\n\r\n")
		server := r.arrived()
		for _, piece := range []string{"a", "b", "c", "d"} {
			<-time.After(wait / 2)
			client.send(piece)
			server.expect(piece)
		}
		server.send("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
		if head := client.answer(); !strings.HasPrefix(head, "HTTP/1.1 200 ") {
			t.Errorf("after a slow upload: %q", head)
		}

		silent := r.connect("POST / HTTP/1.1\r\nHost: t\r\nConnection: close\r\nContent-Length: 2\r\n\r\nx")
		server = r.arrived()
		server.expect("x")
		silent.send("y")
		sent := time.Now()
		if head := silent.answer(); !strings.HasPrefix(head, "HTTP/1.1 504 ") {
			t.Errorf("a silent backend: %q", head)
		}
		if took := time.Since(sent); took < wait/2 {
			t.Errorf("given up after %v, before the time was over", took)
		}
		eventually(t, 5*time.Second, func() string {
			if n := r.metric("starling_streams_total", "reason", string(backend.BackendTimeout)); n != 1 {
				return fmt.Sprintf("%v streams ended with backend_timeout", n)
			}
			return ""
		})
		if n := r.metric("starling_timeouts_total", "kind", "response_header"); n != 1 {
			t.Errorf("counted %v time-outs", n)
		}
	})
}
