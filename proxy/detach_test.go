package proxy_test

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/starling-lb/starling/proxy"
	"github.com/starling-lb/starling/proxy/backend"
)

const eventStream = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"

// chunk is one event as the backend sends it.
func chunk(text string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(text), text) }

// quiet is an event stream that has been silent for so long that it may hold
// no goroutine any more.
func quiet(r *rig) (client, server *caller) {
	r.t.Helper()
	client = r.connect("GET / HTTP/1.1\r\nHost: t\r\n\r\n")
	server = r.arrived()
	server.send(eventStream + chunk("data: 1\n\n"))
	client.answer()
	client.expect(chunk("data: 1\n\n"))
	<-time.After(1300 * time.Millisecond)
	return client, server
}

func TestQuietStreamGoesOn(t *testing.T) {
	onEachLoop(t, nil, func(r *rig) {
		client, server := quiet(r)
		for i := range 3 { // the second within a second of the first brings a goroutine back
			text := chunk(fmt.Sprintf("data: %d\n\n", i))
			server.send(text)
			client.expect(text)
		}
		<-time.After(1300 * time.Millisecond)
		server.send("0\r\n\r\n")
		client.expect("0\r\n\r\n")
		client.send("GET /next HTTP/1.1\r\nHost: t\r\n\r\n") // the connection is good for more
		server.send(server.answerNext(client))
		r.atRest(5*time.Second, backend.Done, 2)
	})
}

// answerNext is an answer to the request that comes next on a connection.
func (c *caller) answerNext(*caller) string {
	c.answer()
	return "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
}

func TestQuietStreamEnds(t *testing.T) {
	for _, tc := range []struct {
		name  string
		end   func(r *rig, client, server *caller)
		why   backend.Reason
		after string // what the client still gets
	}{
		{"client closes", func(_ *rig, client, server *caller) { client.Close(); server.gone() }, backend.ClientLeft, ""},
		{"client resets", func(_ *rig, client, server *caller) { client.reset(); server.gone() }, backend.ClientLeft, ""},
		{"backend closes", func(_ *rig, _, server *caller) { server.Close() }, backend.BackendBroke, ""},
		{"backend resets", func(_ *rig, _, server *caller) { server.reset() }, backend.BackendBroke, ""},
		{"last event and close at once", func(_ *rig, _, server *caller) { server.send(chunk("data: x\n\n")); server.Close() }, backend.BackendBroke, chunk("data: x\n\n")},
		{"garbled chunk", func(_ *rig, _, server *caller) { server.send("zz\r\n") }, backend.BackendBroke, ""},
		{"silence", func(*rig, *caller, *caller) {}, backend.Idle, ""},
		{"stop", func(r *rig, _, _ *caller) { r.stopNow() }, backend.Drained, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			edit := func(c *proxy.PoolConfig) { c.Timeouts.StreamIdle = 2500 * time.Millisecond }
			onEachLoop(t, edit, func(r *rig) {
				client, server := quiet(r)
				tc.end(r, client, server)
				r.atRest(6*time.Second, tc.why, 1)
				if tc.why == backend.ClientLeft {
					return
				}
				got, _ := io.ReadAll(client.in)
				if string(got) != tc.after || strings.Contains(string(got), "0\r\n\r\n") {
					r.t.Errorf("the client still got %q, want %q", got, tc.after)
				}
			})
		})
	}
}

// gone waits for the proxy to close this end, and for no longer than it may.
func (c *caller) gone() {
	c.t.Helper()
	began := time.Now()
	_, _ = io.ReadAll(c.in)
	if took := time.Since(began); took > 100*time.Millisecond*raceFactor {
		c.t.Errorf("the backend was freed after %v", took)
	}
}
