package proxy

import (
	"bufio"
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/starling-lb/starling/proxy/backend"
)

// halves answers a request by half of its body, and by the rest once it may.
func halves(may <-chan struct{}) func(net.Conn, *bufio.Reader) {
	return func(c net.Conn, in *bufio.Reader) {
		for readHead(in) != "" {
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nhalf")
			<-may
			io.WriteString(c, "rest")
		}
	}
}

// change is a scene and its configuration, to be edited and reloaded.
type change struct {
	*scene
	cfg Config
}

func newChange(t *testing.T, plays playwright, edit func(*Config)) *change {
	t.Helper()
	s := &change{}
	s.scene = newScene(t, plays, func(c *Config) {
		if edit != nil {
			edit(c)
		}
		s.cfg = *c
	})
	return s
}

// reload edits a copy of the configuration and has it in force.
func (s *change) reload(edit func(*Config)) error {
	next := s.cfg
	next.Pools, next.Listeners = maps.Clone(next.Pools), slices.Clone(next.Listeners)
	edit(&next)
	err := s.Reload(context.Background(), next)
	if err == nil {
		s.cfg = next
	}
	return err
}

func (s *change) must(edit func(*Config)) {
	s.t.Helper()
	if err := s.reload(edit); err != nil {
		s.t.Fatal(err)
	}
}

// begin opens a stream and reads the first half of its answer.
func (s *change) begin() (*http.Response, *bufio.Reader) {
	s.t.Helper()
	p := s.dial()
	p.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	in := bufio.NewReader(p)
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	half := make([]byte, 4)
	if _, err := io.ReadFull(resp.Body, half); err != nil {
		s.t.Fatal(err)
	}
	return resp, in
}

func rest(t *testing.T, resp *http.Response) {
	t.Helper()
	if got, err := io.ReadAll(resp.Body); err != nil || string(got) != "rest" {
		t.Errorf("the rest of the stream: %q, %v", got, err)
	}
}

// soon waits until something is so.
func soon(t *testing.T, what string, so func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for by := time.Now().Add(2 * patience); !so(); <-tick.C {
		if time.Now().After(by) {
			t.Fatalf("still not so: %s", what)
		}
	}
}

func only(pool string) []RouteConfig { return []RouteConfig{{PathPrefix: "/", Pool: pool}} }

// Everything about a pool changes but its backends: they are the same ones, with
// what runs there, and a connection's next request goes by what is new.
func TestReloadKeepsWhatIsTheSame(t *testing.T) {
	may := make(chan struct{})
	s := newChange(t, playwright{"p": halves(may), "q": answers(okAnswer, nil)}, func(c *Config) { c.Listeners[0].Routes = only("p") })
	stream, in := s.begin()
	was := s.now.Load().pools["p"]
	b, idle := was.Backends()[0], was.of(was.Backends()[0]).idle
	s.must(func(c *Config) {
		p := c.Pools["p"]
		p.Backends = slices.Clone(p.Backends)
		p.Backends[0].Weight, p.Backend.MaxStreams, p.Timeouts.StreamIdle, p.Headers.ExposeBackend = 7, 9, time.Hour, true
		p.Outlier.ConsecutiveFailures, p.Policy = 99, "random"
		c.Pools["p"] = p
		c.Listeners[0].Routes, c.Listeners[0].MaxConnections = append([]RouteConfig{{PathPrefix: "/q", Pool: "q"}}, only("p")...), 5
		c.Timeouts.WriteIdle = time.Hour
	})
	p := s.now.Load().pools["p"]
	switch now := p.Backends()[0]; {
	case now != b || p.of(now).idle != idle || p.tally != was.tally:
		t.Error("the backend is another one, or what belongs to it is")
	case now.Terms().Weight != 7 || now.Terms().Cap != 9 || now.InFlight() != 1:
		t.Errorf("terms %+v, %d streams", now.Terms(), now.InFlight())
	case p.cfg.Timeouts.StreamIdle != time.Hour || p.Placement().Policy != "random":
		t.Error("the pool goes by what was before")
	}
	close(may)
	rest(t, stream)
	soon(t, "the stream is counted at the backend", func() bool {
		return s.counted("streams_total", "pool", "p", "backend", "b-p", "reason", "done") == 1
	})
	if in.Buffered() > 0 {
		t.Error("something stands behind the answer")
	}
	kept := s.peers[0]
	io.WriteString(kept, "GET /q HTTP/1.1\r\nHost: h\r\n\r\n")
	if resp, err := http.ReadResponse(in, nil); err != nil || resp.StatusCode != 200 || resp.Close {
		t.Errorf("the next request on the connection: %v, %v", resp, err)
	}
	soon(t, "the new route was taken", func() bool {
		return s.counted("streams_total", "pool", "q", "backend", "b-q", "reason", "done") == 1
	})
}

// A pool and a listener go: their streams end whole, and then nothing is left.
func TestReloadTakesAway(t *testing.T) {
	may := make(chan struct{})
	s := newChange(t, playwright{"p": halves(may), "q": answers(okAnswer, nil)}, func(c *Config) {
		c.Listeners[0].Routes = only("p")
		more := c.Listeners[0]
		more.Address, more.Routes = "localhost:0", only("q")
		c.Listeners = append(c.Listeners, more)
	})
	stream, _ := s.begin()
	other, err := net.Dial("tcp", s.Addrs()[1])
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	gone := s.Addrs()[0]
	s.must(func(c *Config) {
		delete(c.Pools, "p")
		c.Listeners = c.Listeners[1:]
	})
	if list := s.Addrs(); len(list) != 1 || list[0] == gone {
		t.Errorf("listens on %v", list)
	}
	if c, err := net.Dial("tcp", gone); err == nil {
		c.Close()
		t.Error("the listener that is gone takes connections")
	}
	if got := s.InFlight(); got != 1 {
		t.Errorf("%v streams in flight where one runs", got)
	}
	later := time.Now().Add(2 * lastCalls)
	if s.retire(later); len(s.now.Load().past) != 1 {
		t.Fatal("the pool is gone before its stream")
	}
	close(may)
	rest(t, stream)
	soon(t, "the connection has ended", func() bool {
		n := 0
		s.each(func(c *client) {
			if c.listener.named == "127.0.0.1:0" {
				n++
			}
		})
		return n == 0
	})
	s.retire(later)
	if past := s.now.Load().past; len(past) != 1 || len(past[0].Backends()) > 0 || s.counted("streams_total", "pool", "p", "backend", "b-p", "reason", "done") != 1 {
		t.Error("the pool's series go with its last stream")
	}
	later = time.Now().Add(2 * seriesKept)
	s.metrics.forget(s.now.Load().past[0], later)
	if s.retire(later); len(s.now.Load().past) > 0 || s.counted("streams_total", "pool", "p") != 0 {
		t.Error("the pool is never forgotten")
	}
	io.WriteString(other, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	if resp, err := http.ReadResponse(bufio.NewReader(other), nil); err != nil || resp.StatusCode != 200 {
		t.Errorf("the listener that stays: %v, %v", resp, err)
	}
}

// A pool that comes back while a stream is still there is the same one.
func TestReloadTakesBack(t *testing.T) {
	may := make(chan struct{})
	s := newChange(t, playwright{"p": halves(may), "q": answers(okAnswer, nil)}, func(c *Config) { c.Listeners[0].Routes = only("p") })
	stream, _ := s.begin()
	was, cfg := s.now.Load().pools["p"], s.cfg.Pools["p"]
	s.must(func(c *Config) { delete(c.Pools, "p"); c.Listeners[0].Routes = only("q") })
	s.must(func(c *Config) { c.Pools["p"] = cfg })
	now := s.now.Load()
	if p := now.pools["p"]; p.Pool != was.Pool || len(now.past) > 0 || p.Backends()[0].InFlight() != 1 {
		t.Error("it is another pool")
	}
	s.retire(time.Now().Add(2 * lastCalls))
	if len(now.pools["p"].Backends()) != 1 {
		t.Error("it lost its backends")
	}
	close(may)
	rest(t, stream)
}

// A listener that goes closes connections that wait, at once.
func TestReloadHangsUp(t *testing.T) {
	s := newChange(t, playwright{"p": answers(okAnswer, nil)}, func(c *Config) {
		more := c.Listeners[0]
		more.Address = "localhost:0"
		c.Listeners = append(c.Listeners, more)
	})
	p := s.dial()
	p.ask("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	s.must(func(c *Config) { c.Listeners = c.Listeners[1:] })
	if n, err := p.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the idle connection: %d bytes, %v", n, err)
	}
}

// What cannot be had changes nothing at all.
func TestReloadRefused(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	s := newChange(t, playwright{"p": answers(okAnswer, nil), "q": answers(okAnswer, nil)}, func(c *Config) { c.Listeners[0].Routes = only("p") })
	was := s.now.Load()
	listen := func(address string) func(*Config) {
		return func(c *Config) {
			l := c.Listeners[0]
			l.Address = address
			c.Listeners = append(c.Listeners, l)
		}
	}
	for name, c := range map[string]struct {
		edit func(*Config)
		want string
	}{
		"a port that is taken": {listen(taken.Addr().String()), "listener " + taken.Addr().String()},
		"after one that is free": {func(c *Config) {
			listen("localhost:0")(c)
			listen(taken.Addr().String())(c)
		}, "address already in use; end what listens there"},
		"a route to nowhere": {func(c *Config) { c.Listeners[0].Routes = only("nowhere") }, `no pool "nowhere"`},
		"a backend nowhere": {func(c *Config) {
			p := c.Pools["p"]
			p.Backends = []backend.Config{{ID: "b", URL: "nowhere"}}
			c.Pools["p"] = p
		}, `backend "b" of pool "p"`},
		"no certificate": {func(c *Config) {
			p := c.Pools["p"]
			p.Backend.TLS.CAFile = "/nowhere/ca.pem"
			c.Pools["p"] = p
		}, "certificates of pool p"},
	} {
		before := s.Addrs()
		err := s.reload(func(next *Config) {
			p := next.Pools["p"]
			p.Policy = "random"
			next.Pools["p"] = p
			next.Listeners[0].Routes = only("q")
			c.edit(next)
		})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if s.now.Load() != was || !slices.Equal(s.Addrs(), before) || s.now.Load().pools["p"].Placement().Policy == "random" || s.now.Load().listeners[0].gate.Load().routes[0].pool.Name != "p" {
			t.Errorf("%s: something changed", name)
		}
	}
	s.end()
	if err := s.reload(func(*Config) {}); !errors.Is(err, ErrStopped) {
		t.Errorf("after the end: %v", err)
	}
}

// A listener keeps its certificates where they are the same, and takes others.
func TestReloadCertificates(t *testing.T) {
	a := newAuthority(t)
	files, other := newFiles(t).serve(a), newFiles(t).serve(a)
	s := newChange(t, playwright{"p": answers(okAnswer, nil)}, func(c *Config) { c.Listeners[0].TLS = files })
	keys := s.now.Load().listeners[0].gate.Load().keys
	s.must(func(c *Config) { c.Listeners[0].MaxConnections = 4 })
	if s.now.Load().listeners[0].gate.Load().keys != keys {
		t.Error("the same files are read as other ones")
	}
	s.must(func(c *Config) { c.Listeners[0].TLS = other })
	now := s.now.Load().listeners[0].gate.Load().keys
	if now == keys || now.cert != other.CertFile || !slices.Contains(s.keyrings(), now) || slices.Contains(s.keyrings(), keys) {
		t.Error("the other files are not in force")
	}
	if err := s.reload(func(c *Config) { c.Listeners[0].TLS = ListenerTLS{} }); err == nil || !strings.Contains(err.Error(), "between TLS and none") {
		t.Errorf("TLS goes: %v", err)
	}
}
