package testcluster_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/starling-lb/starling/proxy"
	"github.com/starling-lb/starling/testcluster"
	"github.com/starling-lb/starling/testcluster/fault"
)

// TestNoBodyIsTakenForARequest: the end of an upload cannot be sent on, since
// the backend breaks just then. What the client sends next is its next request,
// and the body is not.
func TestNoBodyIsTakenForARequest(t *testing.T) {
	const smuggled = "GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"
	for _, tc := range []struct{ name, head, begin, end string }{
		{"content length", fmt.Sprintf("Content-Length: %d\r\n", 3+len(smuggled)), "abc", smuggled},
		{"chunked", "Transfer-Encoding: chunked\r\n", "3\r\nabc\r\n", fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(smuggled), smuggled)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			paths, begun := make(chan string, 10), make(chan struct{}, 10)
			at := newOrigin(t, "b1", func(c *net.TCPConn, in *bufio.Reader) {
				for {
					req, err := http.ReadRequest(in)
					if err != nil {
						return
					}
					paths <- req.URL.Path
					if req.Method == http.MethodPost {
						_, _ = io.ReadFull(req.Body, make([]byte, 3))
						begun <- struct{}{}
					}
					if _, err := io.Copy(io.Discard, req.Body); err != nil {
						return
					}
					io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
				}
			})
			bad := fault.New()
			t.Cleanup(bad.Stop)
			dial := bad.Dialer("", new(net.Dialer).DialContext)
			n := startNode(t, testcluster.Options{Dial: proxy.Dialer(dial)}, nil, at)
			c := dialNode(t, n)
			in := bufio.NewReader(c)
			send(t, c, "POST /upload HTTP/1.1\r\nHost: x\r\n"+tc.head+"\r\n"+tc.begin)
			await(t, "the upload has begun", begun)
			bad.Set(fault.Any, fault.Rule{Write: fault.Way{CutAfter: 1, Reset: true}})
			send(t, c, tc.end)
			resp, err := http.ReadResponse(in, nil)
			if err != nil || resp.StatusCode != http.StatusBadGateway {
				t.Fatalf("answer to a broken upload: %v, %v; want 502", resp, err)
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			bad.Clear(fault.Any)
			if resp.Close {
				expectPaths(t, paths, "/upload")
				return
			}
			send(t, c, "GET /second HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
			resp, err = http.ReadResponse(in, nil)
			if err != nil || resp.StatusCode != http.StatusOK {
				t.Fatalf("answer to the next request: %v, %v; want 200", resp, err)
			}
			expectPaths(t, paths, "/upload", "/second")
		})
	}
}

func expectPaths(t *testing.T, paths <-chan string, want ...string) {
	t.Helper()
	for _, w := range want {
		if got := await(t, "a request at the backend", paths); got != w {
			t.Fatalf("the backend got a request for %s, want %s", got, w)
		}
	}
	select {
	case got := <-paths:
		t.Errorf("the backend got a request for %s that nobody sent", got)
	default:
	}
}
