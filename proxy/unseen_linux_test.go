package proxy_test

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/starling-lb/starling/proxy"
	"github.com/starling-lb/starling/proxy/backend"
)

// A POST that meets a backend which closes the kept connection in the same
// instant is done once, or is told to have failed: never done twice, and never
// lost behind a 200.
func TestPostMeetsAClose(t *testing.T) {
	var mu sync.Mutex
	done := map[string]int{}
	fire := make(chan time.Duration)
	o := newOrigin(t, func(o *origin, c *net.TCPConn, in *bufio.Reader) {
		r := o.next(in)
		if r != nil && r.URL.Path == "/warm" {
			reply(c, "")
			for until := time.Now().Add(<-fire); time.Now().Before(until); { // a sleep is too coarse
			}
			return
		}
		if r == nil {
			return
		}
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		done[r.URL.Path]++
		mu.Unlock()
		fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	})
	t.Cleanup(func() { close(fire) })
	g := newFront(t, func(p *proxy.PoolConfig) { p.Retry.BudgetPercent = 0 }, o.addr)
	c := g.dial()
	failed, before := 0, g.metric("retries_total", "llm")
	const rounds = 300
	for i := range rounds {
		if s := hear(g.get("/warm"), "GET"); s.status != 200 {
			t.Fatalf("round %d, first: %+v", i, s)
		}
		g.soon(patience, func() string { return want(int64(g.metric("pool_connections", "idle")), 1) })
		select {
		case fire <- rand.N(150 * time.Microsecond):
		case <-time.After(patience):
			t.Fatalf("round %d: nobody is there to close", i)
		}
		path := fmt.Sprintf("/%d", i)
		fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nonce", path)
		s := hear(c, "POST")
		mu.Lock()
		n := done[path]
		mu.Unlock()
		switch {
		case s.status == 200 && s.body == "once" && n == 1:
		case s.code == string(backend.CodeBroke) && n <= 1:
			failed++
		default:
			t.Fatalf("round %d: %+v, done %d times", i, s, n)
		}
	}
	t.Logf("of %d, %v were sent again and %d failed", rounds, g.metric("retries_total", "llm")-before, failed)
}
