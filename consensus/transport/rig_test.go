package transport

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what must come; it costs nothing when
// it comes sooner.
const patience = 40 * time.Second

// addresses resolves nodes for all transports of a test.
type addresses struct {
	mu sync.Mutex
	at map[string]string
}

func (a *addresses) Resolve(node string) (string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if at, ok := a.at[node]; ok {
		return at, nil
	}
	return "", errors.New("nobody knows it")
}

func (a *addresses) set(node, address string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.at == nil {
		a.at = make(map[string]string)
	}
	a.at[node] = address
}

// journal is a log that a test can look into.
type journal struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (j *journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.buf.Write(b)
}

func (j *journal) has(part string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Contains(j.buf.String(), part)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.buf.String()
}

// peer is a transport of a test, and its log.
type peer struct {
	*Transport
	log *journal
}

type change func(*Config, *Options)

// newPeer builds a node on loopback; it is not started.
func newPeer(t *testing.T, at *addresses, node string, changes ...change) peer {
	t.Helper()
	log := &journal{}
	c := Config{Address: "127.0.0.1:0"}
	o := Options{
		Node: node, Resolver: at,
		Cluster: func() string { return "c1" },
		Dial:    (&net.Dialer{}).DialContext,
		Listen:  (&net.ListenConfig{}).Listen,
		Log:     slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	for _, f := range changes {
		f(&c, &o)
	}
	p, err := New(c, o)
	if err != nil {
		t.Fatal(err)
	}
	return peer{p, log}
}

// up starts it, and has everybody find it.
func (p peer) up(t *testing.T) peer {
	t.Helper()
	if err := p.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.Resolver.(*addresses).set(p.Node, p.Addr().String())
	t.Cleanup(func() { p.down(t) })
	return p
}

func (p peer) down(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := p.Stop(ctx); err != nil {
		t.Error(err)
	}
}

// eventually waits for a condition, and prints the last reason why not.
func eventually(t *testing.T, why func() string) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	late := time.After(patience)
	for {
		reason := why()
		if reason == "" {
			return
		}
		select {
		case <-tick.C:
		case <-late:
			t.Fatal(reason)
		}
	}
}

func logged(j *journal, part string) func() string {
	return func() string {
		if j.has(part) {
			return ""
		}
		return "the log does not say " + part + ":\n" + j.String()
	}
}
