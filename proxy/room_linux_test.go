package proxy

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/starling-lb/starling/proxy/backend"
)

// dialFrom connects from another of the loopback's addresses.
func (r *door) dialFrom(t *testing.T, ip string) *net.TCPConn {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}}
	c, err := d.Dial("tcp", r.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(doorWait)); err != nil {
		t.Fatal(err)
	}
	return c.(*net.TCPConn)
}

// seated waits until the listener knows of n connections.
func (r *door) seated(t *testing.T, n int) {
	t.Helper()
	settles(t, func() string {
		if got := r.metric(t, "client_connections"); got != float64(n) {
			return fmt.Sprintf("%v connections, want %d", got, n)
		}
		return ""
	})
}

// whoWaits are the ways to hold a connection without a request.
func whoWaits() map[string]func(*testing.T, net.Conn) {
	return map[string]func(*testing.T, net.Conn){
		"nothing sent":     func(*testing.T, net.Conn) {},
		"kept":             func(t *testing.T, c net.Conn) { ask(t, c, get) },
		"part of a head":   func(t *testing.T, c net.Conn) { put(t, c, get[:len(get)-2]) },
		"kept, and a part": func(t *testing.T, c net.Conn) { ask(t, c, get); put(t, c, get[:10]) },
	}
}

func put(t *testing.T, c net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
}

// An address that holds all places, and asks for nothing, keeps nobody out: its
// own next ones, as it has most.
func TestCrowdMakesRoom(t *testing.T) {
	for name, hold := range whoWaits() {
		t.Run(name, func(t *testing.T) {
			r := newDoor(t, func(g *plan) { g.listener.MaxConnections = 3 }, echo(t))
			var crowd []net.Conn
			for range 3 {
				c := r.dialFrom(t, "127.0.0.2")
				hold(t, c)
				crowd = append(crowd, c)
			}
			r.seated(t, 3)
			r.waiting(t, 3)
			resp, _ := ask(t, r.dialFrom(t, "127.0.0.2"), get)
			wantStatus(t, resp, 503, backend.TooManyConnections)
			if n := r.metric(t, "client_connections_displaced_total"); n != 0 {
				t.Errorf("%v were closed for one of their own", n)
			}
			resp, _ = ask(t, r.dial(t), get)
			wantStatus(t, resp, 200, "")
			if n := r.metric(t, "client_connections_displaced_total"); n != 1 {
				t.Errorf("%v were closed for one, want 1", n)
			}
			settles(t, func() string {
				if n := endedOf(crowd); n != 1 {
					return fmt.Sprintf("%d of the crowd were closed, want 1", n)
				}
				return ""
			})
			if n := r.log.count("the listener is full"); n != 1 {
				t.Errorf("%d warnings, want 1", n)
			}
		})
	}
}

// waiting waits until n connections wait for a request, or the rest of one.
func (r *door) waiting(t *testing.T, n int) {
	t.Helper()
	settles(t, func() string {
		waits := 0
		r.each(func(c *client) {
			if c.conn.Waits() {
				waits++
			}
		})
		if waits != n {
			return fmt.Sprintf("%d connections wait, want %d", waits, n)
		}
		return ""
	})
}

// endedOf counts the connections that were closed, without an answer.
func endedOf(all []net.Conn) (n int) {
	for _, c := range all {
		_ = c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		if _, err := c.Read(make([]byte, 1)); err == io.EOF {
			n++
		}
	}
	return n
}

// Who has waited for long makes room for anybody.
func TestLongWaitMakesRoom(t *testing.T) {
	r := newDoor(t, func(g *plan) { g.listener.MaxConnections = 1 }, echo(t))
	ask(t, r.dial(t), get)
	resp, _ := ask(t, r.dial(t), get)
	wantStatus(t, resp, 503, backend.TooManyConnections)
	settles(t, func() string {
		r.mu.Lock()
		for c := range r.clients {
			c.rested.Store(time.Now().Add(-longWait - time.Second).UnixNano())
		}
		r.mu.Unlock()
		if resp, _ := ask(t, r.dial(t), get); resp.StatusCode != 200 {
			return "the one that waited kept its place"
		}
		return ""
	})
}

// A request is not ended for a newcomer, whoever has how many.
func TestRequestsMakeNoRoom(t *testing.T) {
	may := make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		_, _ = io.WriteString(w, "a")
		w.(http.Flusher).Flush()
		select {
		case <-may:
		case <-q.Context().Done():
		}
		_, _ = io.WriteString(w, "b")
	}))
	t.Cleanup(slow.Close)
	r := newDoor(t, func(g *plan) { g.listener.MaxConnections = 2 }, slow.URL)
	var streams []*bufio.Reader
	for range 2 {
		c := r.dialFrom(t, "127.0.0.2")
		put(t, c, get)
		in := bufio.NewReader(c)
		if _, err := in.Peek(1); err != nil {
			t.Fatal(err)
		}
		streams = append(streams, in)
	}
	resp, _ := ask(t, r.dial(t), get)
	wantStatus(t, resp, 503, backend.TooManyConnections)
	close(may)
	for _, in := range streams {
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		if body, err := io.ReadAll(resp.Body); err != nil || string(body) != "ab" {
			t.Errorf("a stream brought %q, %v", body, err)
		}
	}
}

// One address has at most as many connections as it may; a proxy that is trusted
// has as many as it brings clients, who are counted by what it says of them.
func TestMaxClientConnections(t *testing.T) {
	t.Parallel()
	r := newDoor(t, func(g *plan) {
		g.listener.MaxClientConnections = 2
		g.listener.TrustedProxies = []string{"127.0.0.3/32"}
	}, echo(t))
	for _, tc := range []struct {
		from string
		want []int
	}{{"127.0.0.2", []int{200, 200, 503, 503}}, {"127.0.0.1", []int{200, 200, 503}}, {"127.0.0.3", []int{200, 200, 200, 200}}} {
		for i, want := range tc.want {
			if resp, _ := ask(t, r.dialFrom(t, tc.from), get); resp.StatusCode != want {
				t.Errorf("connection %d of %s: %d, want %d", i+1, tc.from, resp.StatusCode, want)
			}
		}
	}
	r.empties(t)
	if resp, _ := ask(t, r.dialFrom(t, "127.0.0.2"), get); resp.StatusCode != 200 {
		t.Errorf("places that are free again: %d", resp.StatusCode)
	}
}

// Behind PROXY protocol the header's address is who counts.
func TestMaxClientConnectionsByProxyHeader(t *testing.T) {
	r := newDoor(t, func(g *plan) {
		g.listener.MaxClientConnections, g.listener.ProxyProtocol = 1, true
		g.listener.TrustedProxies = []string{"127.0.0.1/32"}
	}, echo(t))
	for i, tc := range []struct {
		source string
		want   int
	}{{"TCP4 192.0.2.1 192.0.2.9", 200}, {"TCP4 192.0.2.1 192.0.2.9", 503}, {"TCP4 192.0.2.2 192.0.2.9", 200},
		{"TCP6 2001:db8::1 2001:db8::9", 200}, {"TCP6 2001:db8::2 2001:db8::9", 503}, {"TCP6 2001:db8:0:1::1 2001:db8::9", 200}} {
		if resp, _ := ask(t, r.dial(t), "PROXY "+tc.source+" 1234 80\r\n"+get); resp.StatusCode != tc.want {
			t.Errorf("connection %d, of %s: %d, want %d", i+1, tc.source, resp.StatusCode, tc.want)
		}
	}
}

// The counts are right after a storm of all kinds.
func TestCrowdIsCounted(t *testing.T) {
	t.Parallel()
	r := newDoor(t, func(g *plan) { g.listener.MaxConnections, g.listener.MaxClientConnections = 20, 15 }, echo(t))
	for i := range 300 {
		c := r.dialFrom(t, fmt.Sprintf("127.0.0.%d", 2+i%7))
		switch i % 3 {
		case 0:
			_, _ = io.WriteString(c, get)
		case 1:
			_, _ = io.WriteString(c, get[:5])
		}
		if i%2 == 0 {
			c.Close()
		}
	}
	r.empties(t)
}

// empties ends all connections that wait, and looks whether the counts know it.
func (r *door) empties(t *testing.T) {
	t.Helper()
	settles(t, func() string {
		r.each(func(c *client) { _ = c.conn.Oust() })
		l := r.now.Load().listeners[0]
		r.mu.Lock()
		defer r.mu.Unlock()
		if l.open.Load() != 0 || l.told.Load() != 0 || len(l.crowd.homes) != 0 || len(r.clients) != 0 {
			return fmt.Sprintf("%d open, %d told, %d homes, %d clients", l.open.Load(), l.told.Load(), len(l.crowd.homes), len(r.clients))
		}
		return ""
	})
}

// Who was taken in just before the end of a drain is told that the node drains.
func TestNewcomersHearOfTheDrain(t *testing.T) {
	r := newDoor(t, func(g *plan) { g.tune = func(s *Server) { s.newcomerTime = doorWait } }, echo(t))
	r.Drain()
	c := r.dial(t)
	r.seated(t, 1)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		ctx, cancel := context.WithTimeout(context.Background(), doorWait)
		defer cancel()
		r.Stop(ctx)
	}()
	settles(t, func() string {
		if other, err := net.Dial("tcp", r.addr); err == nil {
			other.Close()
			return "the listener is open"
		}
		return ""
	})
	resp, _ := ask(t, c, get)
	wantStatus(t, resp, 503, backend.CodeDraining)
	<-stopped
}
