package testcluster_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/starling-lb/starling/node/api"
	"github.com/starling-lb/starling/proxy"
	"github.com/starling-lb/starling/proxy/backend"
	"github.com/starling-lb/starling/testcluster"
)

// TestQueueIsSeen: what waits is told apart from what runs.
func TestQueueIsSeen(t *testing.T) {
	n := startNode(t, testcluster.Options{}, func(p *proxy.PoolConfig) {
		p.Backend.MaxStreams = 1
	}, newOrigin(t, "b1", func(c *net.TCPConn, in *bufio.Reader) { io.Copy(io.Discard, in) }))
	send(t, dialNode(t, n), "GET /runs HTTP/1.1\r\nHost: x\r\n\r\n")
	eventually(t, patience, func() string { return streams(t, n, 1, 0) })
	send(t, dialNode(t, n), "GET /waits HTTP/1.1\r\nHost: x\r\n\r\n")
	eventually(t, patience, func() string { return streams(t, n, 1, 1) })
	var backends api.Backends
	if err := json.Unmarshal(ask(t, n, "/v1/backends"), &backends); err != nil {
		t.Fatal(err)
	}
	b := backends.Backends[0]
	if b.Cap != 1 || b.CapSource != backend.CapConfig || b.InFlight != (api.InFlight{Local: 1, Cluster: 1}) {
		t.Errorf("the backend is %+v", b)
	}
	var list api.StreamList
	if err := json.Unmarshal(ask(t, n, "/v1/streams"), &list); err != nil {
		t.Fatal(err)
	}
	if s := list.Streams; len(s) != 2 || s[1].Phase != string(proxy.Queued) || s[1].Backend != "" {
		t.Errorf("streams are %+v", s)
	}
}

func streams(t *testing.T, n *testcluster.Node, running, waiting int64) string {
	var status api.Status
	if err := json.Unmarshal(ask(t, n, "/v1/status"), &status); err != nil {
		t.Fatal(err)
	}
	if s := status.Streams; s.InFlight != running || s.Waiting != waiting {
		return fmt.Sprintf("streams are %+v, want %d and %d that wait", s, running, waiting)
	}
	return ""
}
