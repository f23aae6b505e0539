package consensus

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"go.uber.org/goleak"

	"github.com/starling-lb/starling/consensus/store"
	"github.com/starling-lb/starling/consensus/transport"
	"github.com/starling-lb/starling/shards"
)

// patience is how long a test waits for what must come.
const patience = 40 * time.Second

// quick is a clockwork for tests: it still stands a machine that is four times
// slower than usual.
func quick() Timing {
	return Timing{Heartbeat: 300 * time.Millisecond, Lease: 200 * time.Millisecond, Commit: 50 * time.Millisecond, Stall: 400 * time.Millisecond, Behind: time.Second, Snapshot: time.Minute}
}

func TestMain(m *testing.M) {
	if peers := os.Getenv("CONSENSUS_TEST_PEERS"); peers != "" {
		if err := runChild(peers); err != nil {
			fmt.Fprintln(os.Stderr, "child:", err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m,
		// A jammed transfer leaves two of Raft's goroutines for ever, whatever one does.
		goleak.IgnoreAnyFunction("github.com/hashicorp/raft.(*Raft).leadershipTransfer"),
		goleak.IgnoreAnyFunction("github.com/hashicorp/raft.(*Raft).leaderLoop.func3"),
		goleak.IgnoreAnyFunction("github.com/hashicorp/raft.(*Raft).leaderLoop.func2"),
	)
}

// diary is a state machine that keeps every command in order; a result is its
// place.
type diary struct {
	mu    sync.Mutex
	lines []string
}

func (d *diary) Apply(_, _ uint64, commands [][]byte) ([]any, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var places []any
	for _, c := range commands {
		if string(c) == "poison" {
			return nil, errors.New("no such command")
		}
		places = append(places, len(d.lines))
		d.lines = append(d.lines, string(c))
	}
	return places, nil
}

func (d *diary) Snapshot() (io.WriterTo, error) {
	b, err := json.Marshal(d.all())
	return bytes.NewBuffer(b), err
}

func (d *diary) Restore(r io.Reader) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = nil
	return json.NewDecoder(r).Decode(&d.lines)
}

func (d *diary) all() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.lines)
}

// memory is a Store whose replicas outlive their lives, with faults.
type memory struct {
	mu   sync.Mutex
	kept map[store.Key]*memLogs
}

func (m *memory) Open(k store.Key) (Logs, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.kept == nil {
		m.kept = make(map[store.Key]*memLogs)
	}
	if m.kept[k] == nil {
		m.kept[k] = &memLogs{InmemStore: raft.NewInmemStore()}
	}
	return m.kept[k], nil
}

func (m *memory) Drop(k store.Key) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.kept, k)
	return nil
}

// memLogs is a log in memory with a disk's faults.
type memLogs struct {
	*raft.InmemStore
	failing atomic.Bool   // StoreLogs
	saves   atomic.Bool   // Set and SetUint64 fail
	missing atomic.Uint64 // GetLog does not find it
	stalled atomic.Pointer[chan struct{}]
}

var errDisk = errors.New("injected: bad disk")

func (m *memLogs) StoreLogs(l []*raft.Log) error {
	if s := m.stalled.Load(); s != nil {
		<-*s
	}
	if m.failing.Load() {
		return errDisk
	}
	return m.InmemStore.StoreLogs(l)
}

func (m *memLogs) SetUint64(k []byte, v uint64) error {
	if m.saves.Load() {
		return errDisk
	}
	return m.InmemStore.SetUint64(k, v)
}

func (m *memLogs) GetLog(i uint64, l *raft.Log) error {
	if i == m.missing.Load() {
		return raft.ErrLogNotFound
	}
	return m.InmemStore.GetLog(i, l)
}

func (m *memLogs) Align(uint64) error { return nil }
func (m *memLogs) Close()             {}

// stall has writes wait until the function that it returns is called.
func (m *memLogs) stall() (release func()) {
	c := make(chan struct{})
	m.stalled.Store(&c)
	return sync.OnceFunc(func() { m.stalled.Store(nil); close(c) })
}

// town is nodes in one process, and the network between them.
type town struct {
	t     testing.TB
	net   *network
	nodes map[string]*node
	tune  func(*Group)
	times func(node string) Timing
	log   slog.Level
	over  bool
	hash  *shards.Hasher
}

// Replicas has all nodes replicate all shards.
func (w *town) Replicas(uint32) []string { return three() }

type node struct {
	town   *town
	name   string
	port   *transport.Transport
	groups *Groups
	store  *memory
	dir    string
	router *shards.Router
	dead   bool
	close  func() // of its store; nil: it is kept in memory

	mu      sync.Mutex
	diaries map[uint32]*diary // of the last life
}

type build func(*town)

func withTune(f func(*Group)) build {
	return func(w *town) { w.tune = func(g *Group) { brisk(g); f(g) } }
}

// brisk has what is lost in a test's network give up sooner.
func brisk(g *Group) { g.rpc, g.rest = 600*time.Millisecond, 100*time.Millisecond }

func withTimes(f func(string) Timing) build { return func(w *town) { w.times = f } }

// newTown starts nodes named a, b, c and so on, without groups.
func newTown(t testing.TB, count int, with ...build) *town {
	w := &town{t: t, net: newNetwork(), nodes: make(map[string]*node), tune: brisk, times: func(string) Timing { return quick() }, log: slog.LevelError + 1}
	if testing.Verbose() {
		w.log = slog.LevelWarn
	}
	for _, f := range with {
		f(w)
	}
	var err error
	if w.hash, err = shards.NewHasher(bytes.Repeat([]byte{7}, 32), 2); err != nil {
		t.Fatal(err)
	}
	for i := range count {
		w.add(string(rune('a' + i)))
	}
	t.Cleanup(w.end)
	return w
}

func (w *town) add(name string) *node {
	w.t.Helper()
	n := &node{town: w, name: name, store: &memory{}}
	w.nodes[name] = n
	n.up()
	return n
}

// up starts a node, on what its store kept.
func (n *node) up() {
	w := n.town
	w.t.Helper()
	log := slog.New(slog.NewTextHandler(w.t.Output(), &slog.HandlerOptions{Level: w.log})).With("node", n.name)
	n.diaries, n.dead = make(map[uint32]*diary), false
	var err error
	n.port, err = transport.New(transport.Config{Address: "127.0.0.1:0"}, transport.Options{
		Node: n.name, Cluster: func() string { return "c" }, Resolver: w.net, Log: log,
		Dial: w.net.dialer(n.name), Listen: (&net.ListenConfig{}).Listen,
		Gone: func(node string) { n.groups.Gone(node) },
	})
	if err == nil {
		n.groups, err = New(Options{Node: n.name, Dir: n.dir, Transport: n.port, Store: n.store, Log: log, Timing: w.times(n.name), tune: w.tune})
	}
	if err == nil {
		n.port.Serve(shards.AskService, transport.Service{MaxQuestion: 1024, Concurrent: 256, Answer: func(ctx context.Context, from string, q []byte) ([]byte, error) {
			return n.router.Answer(ctx, from, q)
		}})
		n.router = shards.NewRouter(shards.Options{Node: n.name, Hash: w.hash, Peers: n.port, Place: w})
		err = n.port.Start(context.Background())
	}
	if err != nil {
		w.t.Fatal(err)
	}
	w.net.set(n.name, n.port.Addr().String())
}

// kill ends a node as kill -9 would: its connections break, nobody is told.
func (n *node) kill() {
	n.dead = true
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = n.port.Stop(ctx)
	ctx, cancel = context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := n.groups.Stop(ctx); err != nil {
		n.town.t.Errorf("stop of the groups of %s: %v", n.name, err)
	}
	n.shut()
}

func (n *node) shut() {
	if n.close != nil {
		n.close()
		n.close = nil
	}
}

func (w *town) end() {
	if w.over {
		return
	}
	w.over = true
	w.net.heal()
	for _, name := range w.names() {
		n := w.nodes[name]
		if n.dead {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		if err := n.groups.Stop(ctx); err != nil {
			w.t.Errorf("stop of the groups of %s: %v", name, err)
		}
		if err := n.port.Stop(ctx); err != nil {
			w.t.Errorf("stop of the port of %s: %v", name, err)
		}
		cancel()
		n.shut()
	}
}

func (w *town) names() []string { return slices.Sorted(maps.Keys(w.nodes)) }

// open starts a shard's replica on nodes, founded by the founders.
func (w *town) open(shard uint32, founders []string, on ...string) {
	w.t.Helper()
	for _, name := range on {
		w.nodes[name].open(shard, founders)
	}
}

func (n *node) open(shard uint32, founders []string) *Group {
	n.town.t.Helper()
	g, err := n.groups.Open(Spec{ID: transport.GroupID{Shard: shard, Incarnation: 1}, Founders: founders, Machine: func() StateMachine {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.diaries[shard] = &diary{}
		return n.diaries[shard]
	}})
	if err != nil {
		n.town.t.Fatal(err)
	}
	return g
}

func (n *node) diary(shard uint32) *diary {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.diaries[shard]
}

// logs is what a replica keeps.
func (n *node) logs(shard uint32) *memLogs {
	n.store.mu.Lock()
	defer n.store.mu.Unlock()
	for k, l := range n.store.kept {
		if k.Shard == uint64(shard) {
			return l
		}
	}
	return nil
}

// leader waits for a node among those named that may answer for the shard.
func (w *town) leader(shard uint32, among ...string) (led *node) {
	w.t.Helper()
	if among == nil {
		among = w.names()
	}
	w.eventually(func() string {
		for _, name := range among {
			n := w.nodes[name]
			if g := n.groups.Group(shard); !n.dead && g != nil && g.State().Open {
				led = n
				return ""
			}
		}
		return fmt.Sprintf("shard %d has no leader among %v", shard, among)
	})
	return led
}

// propose has the shard's leader do a command, whoever that is, within patience.
func (w *town) propose(shard uint32, command string, among ...string) {
	w.t.Helper()
	w.eventually(func() string {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, err := w.leader(shard, among...).groups.Group(shard).Propose(ctx, []byte(command))
		return text(err)
	})
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// eventually waits for a condition, and tells the last reason why not.
func (w *town) eventually(why func() string) {
	w.t.Helper()
	eventually(w.t, why)
}

func eventually(t testing.TB, why func() string) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
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

// stays watches that a condition does not come within a time; it tells when it did.
func stays(d time.Duration, away func() bool) bool {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	late := time.After(d)
	for {
		select {
		case <-late:
			return true
		case <-tick.C:
			if !away() {
				return false
			}
		}
	}
}
