package testcluster_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/starling-lb/starling/node/api"
	"github.com/starling-lb/starling/proxy"
	"github.com/starling-lb/starling/proxy/backend"
	"github.com/starling-lb/starling/testcluster"
	"github.com/starling-lb/starling/testcluster/fault"
)

const freed = 100 * time.Millisecond * raceFactor // from a client's leave to its place being free

// leaving is a stream that its client leaves.
type leaving struct {
	name, request string
	answer        string // sent before the backend falls silent
	reads         int    // bytes of the body that the backend takes
}

// TestLeavingFreesTheBackend: whatever the stream waits for, a client that
// leaves ends it, while the backend says nothing.
func TestLeavingFreesTheBackend(t *testing.T) {
	for _, l := range []leaving{
		{"waiting for an answer", "GET /x HTTP/1.1\r\nHost: x\r\n\r\n", "", 0},
		{"waiting, request with a body", "POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody", "", 4},
		{"in the middle of the answer", "GET /x HTTP/1.1\r\nHost: x\r\n\r\n", sseHead + "9\r\ndata: x\n\n\r\n", 0},
		{"answer of a known length", "GET /x HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc", 0},
		{"within an upload", "POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n" + strings.Repeat("a", 5000), "", 5000},
		{"within a chunked upload", "POST /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", "", 3},
		{"within an upload that is answered already", "POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n" + strings.Repeat("a", 5000), sseHead + "9\r\ndata: x\n\n\r\n", 5000},
	} {
		for _, how := range []string{"FIN", "RST"} {
			t.Run(l.name+", "+how, func(t *testing.T) {
				inTime(t, "the backend's connection and the place", freed, func() time.Duration { return l.frees(t, how) })
			})
		}
	}
}

// frees is how long after a client's leave backend and place are free.
func (l leaving) frees(t *testing.T, how string) time.Duration {
	t.Helper()
	silent, gone := make(chan struct{}), make(chan time.Time, 1)
	n := startNode(t, testcluster.Options{}, nil, newOrigin(t, "b1", func(c *net.TCPConn, in *bufio.Reader) {
		if _, _, err := readHead(in); err != nil {
			return
		}
		io.CopyN(io.Discard, in, int64(l.reads))
		io.WriteString(c, l.answer)
		close(silent)
		io.Copy(io.Discard, in) // ends when starling lets go
		gone <- time.Now()
	}))
	c := dialNode(t, n)
	send(t, c, l.request)
	await(t, "the backend has the request", silent)
	if l.answer != "" {
		if _, err := c.Read(make([]byte, 10)); err != nil {
			t.Fatal(err)
		}
	}
	if got := inFlight(t, n); got != 1 {
		t.Fatalf("%d streams in flight before the client leaves, want 1", got)
	}
	left := time.Now()
	leave(c, how)
	place := expectLeft(t, n, left)
	return max(place, await(t, "the backend's connection ends", gone).Sub(left))
}

// TestLeavingEndsAConnect: the backend never accepts.
func TestLeavingEndsAConnect(t *testing.T) {
	for _, how := range []string{"FIN", "RST"} {
		for request, text := range map[string]string{
			"GET":                "GET /x HTTP/1.1\r\nHost: x\r\n\r\n",
			"POST with its body": "POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody",
			"POST, body to come": "POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 400000\r\n\r\nbody",
		} {
			t.Run(request+", "+how, func(t *testing.T) {
				inTime(t, "the place", freed, func() time.Duration { return endsConnect(t, text, how) })
			})
		}
	}
}

// endsConnect is how long after a client's leave the place of a stream is free that
// was connecting.
func endsConnect(t *testing.T, request, how string) time.Duration {
	t.Helper()
	dark := fault.New()
	t.Cleanup(dark.Stop)
	dark.Set(fault.Any, fault.Rule{Read: fault.Way{Drop: true}})
	dial := dark.Dialer("", new(net.Dialer).DialContext)
	n := startNode(t, testcluster.Options{Dial: proxy.Dialer(dial)}, func(p *proxy.PoolConfig) {
		p.Timeouts.Connect = time.Hour
	}, origin{"b1", "127.0.0.1:9"})
	c := dialNode(t, n)
	send(t, c, request)
	eventually(t, patience, func() string { return connecting(t, n) })
	left := time.Now()
	leave(c, how)
	return expectLeft(t, n, left)
}

func connecting(t *testing.T, n *testcluster.Node) string {
	var list api.StreamList
	if err := json.Unmarshal(ask(t, n, "/v1/streams"), &list); err != nil {
		t.Fatal(err)
	}
	if s := list.Streams; len(s) != 1 || s[0].Phase != string(proxy.Connecting) {
		return fmt.Sprintf("streams are %+v, want one that connects", s)
	}
	return ""
}

// expectLeft waits until the client's leave is over and counted, and says how long after
// it its place was free.
func expectLeft(t *testing.T, n *testcluster.Node, left time.Time) (after time.Duration) {
	t.Helper()
	eventually(t, patience, func() string {
		asked := time.Now()
		if got := inFlight(t, n); got != 0 {
			return fmt.Sprintf("%d streams in flight", got)
		}
		after = asked.Sub(left) // the answer's own time is not the place's
		return ""
	})
	eventually(t, patience, func() string {
		if got := metrics(t, n, "starling_streams_total", reason(backend.ClientLeft)); got != 1 {
			return fmt.Sprintf("%v streams ended with client_left, want 1", got)
		}
		return ""
	})
	return after
}
