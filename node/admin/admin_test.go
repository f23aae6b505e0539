package admin

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/starling-lb/starling/node/api"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 10 * time.Second // nothing here takes that long unless it is broken

// fakeNode answers what its test puts in.
type fakeNode struct {
	mu       sync.Mutex
	status   api.Status
	backends api.Backends
	streams  api.StreamList
	pools    api.Pools
	members  api.Members
	shards   api.ShardList
	ready    error
	limit    int           // the last one asked for
	changed  string        // by an operator, the last
	refusal  error         // of what an operator changes
	entered  chan struct{} // if not nil, gets one for each Status and Streams
	leave    chan struct{} // if not nil, Status waits for it
	feed     fakeFeed
	followed string   // what of the events was asked for
	ordered  []string // what operators are noted to have done
}

func (n *fakeNode) Status() api.Status {
	n.enter()
	if n.leave != nil {
		<-n.leave
	}
	return n.status
}

func (n *fakeNode) Streams(_ context.Context, limit int) api.StreamList {
	n.enter()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.limit = limit
	return n.streams
}

func (n *fakeNode) enter() {
	if n.entered != nil {
		n.entered <- struct{}{}
	}
}

func (n *fakeNode) Backends() api.Backends { return n.backends }
func (n *fakeNode) Ready() error           { return n.ready }
func (n *fakeNode) Configuration() (api.Config, error) {
	return api.Config{Hash: "9c1185a5c5e9", Config: map[string]any{"pools": map[string]any{}}, YAML: "pools: {}\n"}, n.refusal
}
func (n *fakeNode) Ordered(what string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ordered = append(n.ordered, what)
}
func (n *fakeNode) Events(after string, last int) (Feed, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.followed = fmt.Sprintf("%s %d", after, last)
	return n.feed, n.refusal
}
func (n *fakeNode) Keys(context.Context) (api.Keys, error) {
	return api.Keys{Nodes: []api.NodeKeys{{ID: "n", Name: "lb-1", Keys: []string{"0a1b2c3d"}}}}, nil
}
func (n *fakeNode) ChangeKeys(_ context.Context, order, key string) error {
	return n.change("%s %s", order, key)
}
func (n *fakeNode) Members() api.Members                 { return n.members }
func (n *fakeNode) Shards(context.Context) api.ShardList { return n.shards }

// change notes what an operator changed, and refuses it if the test says so.
func (n *fakeNode) change(format string, args ...any) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.changed = fmt.Sprintf(format, args...)
	return n.refusal
}

func (n *fakeNode) Pools() api.Pools { return n.pools }

func (n *fakeNode) whole() []api.NodeAnswer {
	return []api.NodeAnswer{{ID: "n", Name: "lb-1", State: "alive", Self: true}, {ID: "m", Name: "lb-2", State: "dead", Error: "it is dead"}}
}
func (n *fakeNode) StatusOfAll(context.Context) (api.Status, error) {
	s := n.status
	s.Nodes = n.whole()
	return s, n.refusal
}
func (n *fakeNode) PoolsOfAll(context.Context) (api.Pools, error) {
	return api.Pools{Nodes: n.whole()}, n.refusal
}
func (n *fakeNode) BackendsOfAll(context.Context) (api.Backends, error) {
	return api.Backends{Nodes: n.whole()}, n.refusal
}
func (n *fakeNode) StreamsOfAll(_ context.Context, limit int) (api.StreamList, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.limit = limit
	return api.StreamList{Nodes: n.whole()}, n.refusal
}
func (n *fakeNode) AddBackend(pool string, b api.NewBackend) error {
	return n.change("add %s %+v", pool, b)
}
func (n *fakeNode) RemoveBackend(pool, id string) error      { return n.change("remove %s %s", pool, id) }
func (n *fakeNode) ChangeBackend(id string, verb Verb) error { return n.change("%s %s", verb, id) }
func (n *fakeNode) ChangeHere(id string, verb Verb) error    { return n.change("%s %s here", verb, id) }
func (n *fakeNode) WeighBackend(id string, weight int) error {
	return n.change("weigh %s %d", id, weight)
}
func (n *fakeNode) SetPolicy(pool string, want api.Policy) error {
	return n.change("policy %s %s, %v of %s", pool, want.Policy, want.Share, want.Second)
}

func (n *fakeNode) DrainNode(context.Context) error { return n.change("drain") }
func (n *fakeNode) LeaveNode(context.Context) error { return n.change("leave") }
func (n *fakeNode) StayNode(context.Context) error  { return n.change("stay") }

func (n *fakeNode) Upgrade(context.Context) (api.Upgraded, error) {
	return api.Upgraded{PID: 4711, Version: "v9", Took: 0.5, Waited: 0.25, Streams: 3}, n.change("upgrade")
}

func (n *fakeNode) Reload(context.Context) (api.Reloaded, error) {
	return api.Reloaded{ConfigHash: "0a1b2c3d4e5f", Changed: true}, n.change("reload")
}
func (n *fakeNode) ReloadAll(context.Context) (api.Reloaded, error) {
	all := []api.NodeReloaded{{ID: "n", Name: "lb-1", ConfigHash: "0a1b2c3d4e5f", Changed: true}, {ID: "m", Name: "lb-2", Error: "it is dead"}}
	return api.Reloaded{ConfigHash: "0a1b2c3d4e5f", Changed: true, Nodes: all}, n.change("reload all")
}

func (n *fakeNode) ResetShard(_ context.Context, id string, empty bool) error {
	if empty {
		return n.change("empty %s", id)
	}
	return n.change("reset %s", id)
}

func (n *fakeNode) MoveSession(_ context.Context, pool, key, backend string) error {
	return n.change("move %s %s %s", pool, key, backend)
}
func (n *fakeNode) Session(_ context.Context, pool, key string) (api.Session, error) {
	return api.Session{Backend: pool + " " + key}, nil
}
func (n *fakeNode) SetRebalance(pool string, want api.Rebalancing) error {
	return n.change("rebalance %s %v", pool, want.Enabled)
}

func (n *fakeNode) asked() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.limit
}

// rig is a server to test and what goes in.
type rig struct {
	cfg  Config
	node *fakeNode
	reg  *prometheus.Registry
	log  *syncBuffer
	tune func(*Server) // before Start
}

func newRig() *rig {
	return &rig{cfg: Config{Address: "127.0.0.1:0"}, node: &fakeNode{members: api.Members{Members: []api.Member{}}, shards: api.ShardList{Shards: []api.Shard{}}}, reg: prometheus.NewRegistry(), log: &syncBuffer{}}
}

func (r *rig) options() Options {
	var lc net.ListenConfig
	return Options{
		Node: r.node, Gatherer: r.reg, Listen: lc.Listen,
		Logger: slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
}

func (r *rig) start(t *testing.T) *Server {
	t.Helper()
	s, err := New(r.cfg, r.options())
	if err != nil {
		t.Fatal(err)
	}
	if r.tune != nil {
		r.tune(s)
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := s.Stop(ctx); err != nil {
			t.Errorf("stop: %v", err)
		}
	})
	return s
}

// reply is an answer with its body read.
type reply struct {
	*http.Response
	body string
}

// ask sends "METHOD TARGET" with header fields "Name: value"; Host is one.
func ask(t *testing.T, s *Server, request string, fields ...string) reply {
	t.Helper()
	method, target, _ := strings.Cut(request, " ")
	req, err := http.NewRequestWithContext(t.Context(), method, "http://"+s.Addr().String()+target, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range fields {
		name, value, _ := strings.Cut(f, ": ")
		if name == "Host" {
			req.Host = value
		}
		req.Header.Add(name, value)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DisableCompression: true}, Timeout: patience}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply{resp, string(body)}
}

// wantError checks the whole form of a refusal.
func (r reply) wantError(t *testing.T, code Code, words string) {
	t.Helper()
	var e api.Error
	if err := json.Unmarshal([]byte(r.body), &e); err != nil {
		t.Fatalf("status %d, body %q is no error: %v", r.StatusCode, r.body, err)
	}
	if r.StatusCode != code.Status() || e.Error.Code != string(code) || r.Header.Get("X-Starling-Error") != string(code) {
		t.Errorf("got status %d, code %q, header %q (%s), want %s", r.StatusCode, e.Error.Code, r.Header.Get("X-Starling-Error"), e.Error.Message, code)
	}
	if !strings.Contains(e.Error.Message, words) {
		t.Errorf("message %q does not say %q", e.Error.Message, words)
	}
	if id := e.Error.RequestID; len(id) != 16 || id != r.Header.Get("X-Request-Id") {
		t.Errorf("request_id %q, header %q: want one id in both", id, r.Header.Get("X-Request-Id"))
	}
	if got := r.Header.Get("Content-Type"); got != "application/json" {
		t.Errorf("content type %q", got)
	}
}

// dial opens a bare connection, for what http.Client would not do.
func dial(t *testing.T, s *Server) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return c
}

func send(t *testing.T, c net.Conn, format string, args ...any) {
	t.Helper()
	if _, err := fmt.Fprintf(c, format, args...); err != nil {
		t.Fatal(err)
	}
}

// receive reads one answer off a bare connection.
func receive(t *testing.T, c net.Conn) reply {
	t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply{resp, string(body)}
}

// wantClosed waits for the server to close c; a reset will do.
func wantClosed(t *testing.T, c net.Conn) {
	t.Helper()
	_, err := c.Read(make([]byte, 1))
	if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("connection is still open: %v", err)
	}
}

func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// syncBuffer is a log that several goroutines write.
type syncBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
