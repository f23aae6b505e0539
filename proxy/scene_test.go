package proxy

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/starling-lb/starling/proxy/backend"
)

const patience = 10 * time.Second // no wait of a test is longer

// scene is a server in front of one backend per pool, on real sockets.
type scene struct {
	*Server
	t        testing.TB
	registry *prometheus.Registry
	peers    []net.Conn
}

// playwright says what the backend of a pool does on each connection; it is
// closed when that returns.
type playwright map[string]func(c net.Conn, in *bufio.Reader)

// newScene starts a server. edit has the last word on its configuration; a
// listener without routes sends all to the pool "p".
func newScene(t testing.TB, plays playwright, edit func(*Config)) *scene {
	t.Helper()
	return newSceneOn(t, (&net.ListenConfig{}).Listen, plays, edit)
}

func newSceneOn(t testing.TB, listen Listener, plays playwright, edit func(*Config)) *scene {
	t.Helper()
	cfg := Config{Timeouts: DefaultClientTimeouts(), Pools: map[string]PoolConfig{}, AccessLog: DefaultAccessLog(), Tracing: DefaultTracing()}
	for name, play := range plays {
		p := DefaultPool()
		b := backend.DefaultConfig()
		b.ID, b.URL = "b-"+name, "http://"+stageBackend(t, play)
		p.Backends = []backend.Config{b}
		cfg.Pools[name] = p
	}
	l := DefaultListener()
	l.Address = "127.0.0.1:0"
	cfg.Listeners = []ListenerConfig{l}
	if edit != nil {
		edit(&cfg)
	}
	s := &scene{t: t, registry: prometheus.NewRegistry()}
	var err error
	s.Server, err = New(cfg, Options{
		Logger: slog.New(slog.DiscardHandler), Node: "n1", Registry: s.registry, Ready: func() error { return nil },
		Dial: (&net.Dialer{}).DialContext, Listen: listen, Sessions: &lodging{backend: "b-p"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.end)
	return s
}

// listenPlain has connections without a descriptor, which the portable loop reads.
func listenPlain(ctx context.Context, network, addr string) (net.Listener, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, network, addr)
	return plainListener{l}, err
}

type plainListener struct{ net.Listener }

func (l plainListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return struct{ net.Conn }{c}, err
}

// end has the clients leave and stops the server, which writes all that there
// is to write; it may be called again.
func (s *scene) end() {
	for _, c := range s.peers {
		c.Close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	s.Stop(ctx)
}

// stageBackend listens for as long as the test runs.
func stageBackend(t testing.TB, play func(net.Conn, *bufio.Reader)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var tasks sync.WaitGroup
	var mu sync.Mutex
	var open []net.Conn
	tasks.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open = append(open, c)
			mu.Unlock()
			tasks.Go(func() {
				defer c.Close()
				play(c, bufio.NewReader(c))
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		mu.Lock()
		for _, c := range open {
			c.Close()
		}
		mu.Unlock()
		tasks.Wait()
	})
	return l.Addr().String()
}

// answers is a backend that gives the same answer to every request; what it is
// asked goes to asked, where that is not nil.
func answers(answer string, asked chan<- string) func(net.Conn, *bufio.Reader) {
	return func(c net.Conn, in *bufio.Reader) {
		for {
			head, body := readMessage(in)
			if head == "" {
				return
			}
			if asked != nil {
				asked <- head + body
			}
			io.WriteString(c, answer)
		}
	}
}

// readMessage reads a head and its body, whatever its framing, which stays in
// it; an empty head is the end of the connection.
func readMessage(in *bufio.Reader) (head, body string) {
	head = readHead(in)
	n := 0
	for _, line := range strings.Split(head, "\r\n") {
		fmt.Sscanf(line, "Content-Length: %d", &n)
	}
	if strings.Contains(head, "Transfer-Encoding: chunked") {
		var all strings.Builder
		for !strings.HasSuffix(all.String(), "0\r\n\r\n") {
			line, err := in.ReadString('\n')
			if err != nil {
				return head, all.String()
			}
			all.WriteString(line)
		}
		return head, all.String()
	}
	p := make([]byte, n)
	n, _ = io.ReadFull(in, p)
	return head, string(p[:n])
}

// readHead reads up to the empty line.
func readHead(in *bufio.Reader) string {
	var head strings.Builder
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return ""
		}
		head.WriteString(line)
		if line == "\r\n" {
			return head.String()
		}
	}
}

// peer is a client's connection.
type peer struct {
	net.Conn
	in *bufio.Reader
	t  testing.TB
}

func (s *scene) dial() *peer {
	s.t.Helper()
	c, err := net.Dial("tcp", s.Addrs()[0])
	if err != nil {
		s.t.Fatal(err)
	}
	s.peers = append(s.peers, c)
	c.SetDeadline(time.Now().Add(patience))
	return &peer{Conn: c, in: bufio.NewReader(c), t: s.t}
}

func (p *peer) send(text string) {
	p.t.Helper()
	if _, err := io.WriteString(p, text); err != nil {
		p.t.Fatal(err)
	}
}

// ask sends and reads one answer.
func (p *peer) ask(text string) (head, body string) {
	p.t.Helper()
	p.send(text)
	if head, body = readMessage(p.in); head == "" {
		p.t.Fatalf("no answer to %.80q", text)
	}
	return head, body
}

// counted is a counter's value; labels are name, value, name, value.
func (s *scene) counted(name string, labels ...string) float64 {
	s.t.Helper()
	families, err := s.registry.Gather()
	if err != nil {
		s.t.Fatal(err)
	}
	sum := 0.0
	for _, f := range families {
		if f.GetName() != "starling_"+name {
			continue
		}
		for _, m := range f.GetMetric() {
			has := 0
			for _, l := range m.GetLabel() {
				for i := 0; i < len(labels); i += 2 {
					if l.GetName() == labels[i] && l.GetValue() == labels[i+1] {
						has++
					}
				}
			}
			if has == len(labels)/2 {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return sum
}

const okAnswer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

// nothingRegistered is a registry for servers whose metrics nobody reads.
type nothingRegistered struct{}

func (nothingRegistered) Register(prometheus.Collector) error  { return nil }
func (nothingRegistered) MustRegister(...prometheus.Collector) {}
func (nothingRegistered) Unregister(prometheus.Collector) bool { return false }
