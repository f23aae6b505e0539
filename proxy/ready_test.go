package proxy

import (
	"bufio"
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"testing"
)

// The listener's own path tells whether the node may get traffic, and keeps the
// connection for requests that follow.
func TestReadyPath(t *testing.T) {
	var down atomic.Bool
	r := newDoor(t, func(g *plan) {
		g.listener.ReadyPath = "/ready"
		g.opt.Ready = func() error {
			if down.Load() {
				return errors.New("not yet")
			}
			return nil
		}
	}, echo(t))
	c := r.dial(t)
	const request = "GET /ready HTTP/1.1\r\nHost: t.test\r\n\r\n"
	if resp, body := ask(t, c, request); resp.StatusCode != 200 || body != "ready\n" {
		t.Errorf("ready: %d %q", resp.StatusCode, body)
	}
	down.Store(true)
	if resp, body := ask(t, c, request); resp.StatusCode != 503 || body != "not yet\n" {
		t.Errorf("not ready: %d %q", resp.StatusCode, body)
	}
	if resp, body := ask(t, c, "GET /ready/other HTTP/1.1\r\nHost: t.test\r\n\r\n"); resp.StatusCode != 200 || !strings.HasPrefix(body, "host=") {
		t.Errorf("another path: %d %q", resp.StatusCode, body)
	}
}

// A body that is sent to it is not read, nor is what comes after one that said
// close; and the close behind the answer is no reset, which could take the
// answer with it.
func TestReadyPathWithABody(t *testing.T) {
	r := newDoor(t, func(g *plan) { g.listener.ReadyPath = "/ready" }, echo(t))
	for name, request := range map[string]string{
		"a body":          "POST /ready HTTP/1.1\r\nHost: t.test\r\nContent-Length: 1000000\r\n\r\n" + strings.Repeat("x", 20000),
		"a chunked body":  "POST /ready HTTP/1.1\r\nHost: t.test\r\nTransfer-Encoding: chunked\r\n\r\n4e20\r\n" + strings.Repeat("x", 20000),
		"bytes behind it": "GET /ready HTTP/1.1\r\nHost: t.test\r\nConnection: close\r\n\r\n" + strings.Repeat("x", 20000),
	} {
		c := r.dial(t)
		if _, err := io.WriteString(c, request); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		in := bufio.NewReader(c)
		if resp, body := answer(t, in); resp.StatusCode != 200 || body != "ready\n" || !resp.Close {
			t.Errorf("%s: %d %q, closes %v", name, resp.StatusCode, body, resp.Close)
		}
		if rest, err := io.ReadAll(in); err != nil || len(rest) > 0 {
			t.Errorf("%s: behind the answer %q, %v", name, rest, err)
		}
	}
}
