package quorum

import (
	"context"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/starling-lb/starling/consensus/transport"
	"github.com/starling-lb/starling/shards/meta"
)

// patience is how long a test waits for what must come.
const patience = 40 * time.Second

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// town is what gossip would tell of each node to all.
type town struct {
	mu    sync.Mutex
	peers map[string]Peer
}

// seat is one node's view of it.
type seat struct {
	*town
	self string
}

func (s seat) Peers() (all []Peer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.peers {
		all = append(all, p)
	}
	return all
}

func (s seat) Tell(n Notice) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.peers[s.self]
	p.RPC, p.Cluster, p.Sees, p.Generation = n.RPC.String(), n.Cluster, n.Sees, n.Generation
	s.peers[s.self] = p
}

// settle starts a node in a directory of its own, or in one that another has
// left.
func (w *town) settle(t testing.TB, id, dir string, expect int) *Quorum {
	t.Helper()
	w.mu.Lock()
	w.peers[id] = Peer{ID: id, Name: "lb-" + id, Alive: true, Hosts: true, Level: Level, Expect: expect}
	w.mu.Unlock()
	return start(t, Options{Self: Peer{ID: id, Name: "lb-" + id}, Dir: dir, Expect: expect, Around: seat{w, id}})
}

func start(t testing.TB, o Options) *Quorum {
	t.Helper()
	o.Config = DefaultConfig()
	o.Config.Count = 3
	o.RPC = transport.Config{Address: "127.0.0.1:0"}
	o.Log = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelError}))
	o.Dial, o.Listen = (&net.Dialer{}).DialContext, (&net.ListenConfig{}).Listen
	q, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := q.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { halt(t, q) })
	return q
}

func halt(t testing.TB, q *Quorum) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := q.Stop(ctx); err != nil {
		t.Errorf("stop: %v", err)
	}
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

// TestNobodyFoundsTooEarly: two of three nodes wait, and say for what; with the
// third they are one cluster.
func TestNobodyFoundsTooEarly(t *testing.T) {
	w := &town{peers: make(map[string]Peer)}
	all := []*Quorum{w.settle(t, "a", t.TempDir(), 3), w.settle(t, "b", t.TempDir(), 3)}
	for _, q := range all {
		eventually(t, func() string {
			if q.Cluster() != "" {
				t.Fatal("two of three nodes have founded a cluster")
			}
			if why := q.Waits(); !strings.Contains(why, "sees 2 of the 3 nodes") {
				return "it waits for: " + why
			}
			return ""
		})
	}
	all = append(all, w.settle(t, "c", t.TempDir(), 3))
	for _, q := range all {
		eventually(t, func() string {
			if q.Cluster() == "" || q.Cluster() != all[0].Cluster() {
				return "it is of cluster " + q.Cluster()
			}
			return ""
		})
		if q.Waits() != "" {
			t.Errorf("in a cluster it waits for %s", q.Waits())
		}
	}
}

// TestFounderGoesOn: a founder that ends with its map on disk and nothing else
// done founds that cluster when it comes back, and no other.
func TestFounderGoesOn(t *testing.T) {
	dir := t.TempDir()
	m := meta.NewMap("a", 3, 3, Level, []meta.Newcomer{{ID: "a", Name: "lb-a", Hosts: true, Level: Level, Expect: 1, Sees: 1}})
	if err := m.Save(dir); err != nil {
		t.Fatal(err)
	}
	w := &town{peers: make(map[string]Peer)}
	q := w.settle(t, "a", dir, 1)
	if q.Cluster() != m.Cluster {
		t.Fatalf("it is of cluster %q, and had begun to found %s", q.Cluster(), m.Cluster)
	}
	eventually(t, func() string {
		if count, led, _, decides := q.Led(); count != 3 || led != 3 || !decides {
			return "its shards are not made"
		}
		return ""
	})
}

// TestNodeAlone is whole when its start returns, listens nowhere, and finds its
// cluster again; also as one of several, later.
func TestNodeAlone(t *testing.T) {
	dir := t.TempDir()
	alone := Options{Self: Peer{ID: "a", Name: "lb-a"}, Dir: dir, Expect: 1}
	q := start(t, alone)
	if count, led, without, decides := q.Led(); count != 3 || led != 3 || without != 0 || !decides {
		t.Fatalf("it has started, and of %d shards leads %d", count, led)
	}
	b, err := q.Router().Bind(t.Context(), "llm", "me", "b1")
	if err != nil || b.Backend != "b1" {
		t.Fatalf("bind: %v, %v", b, err)
	}
	id := q.Cluster()
	halt(t, q)
	w := &town{peers: make(map[string]Peer)}
	q = w.settle(t, "a", dir, 3)
	eventually(t, func() string {
		b, ok, err := q.Router().Read(t.Context(), "llm", "me")
		if err != nil || !ok || b.Backend != "b1" {
			return "the session has moved"
		}
		return ""
	})
	if q.Cluster() != id {
		t.Errorf("cluster %s has become %s", id, q.Cluster())
	}
}

// TestNoPortForOthersWithoutTLS: whoever builds the configuration.
func TestNoPortForOthersWithoutTLS(t *testing.T) {
	o := Options{Self: Peer{ID: "a"}, Dir: t.TempDir(), Config: DefaultConfig(), RPC: transport.Config{Address: "0.0.0.0:0"}, Around: seat{}}
	if _, err := New(o); err == nil || !strings.Contains(err.Error(), "cluster.rpc: 0.0.0.0:0 can be reached from other machines") {
		t.Errorf("New: %v", err)
	}
}

// TestWhoLives: of a shard that a node has no replica of it knows whether a
// majority of its voters is there.
func TestWhoLives(t *testing.T) {
	s := meta.Shard{Replicas: []meta.Replica{{Node: "a", Voter: true}, {Node: "b", Voter: true}, {Node: "c", Voter: true}, {Node: "d"}}}
	for _, c := range []struct {
		alive []string
		want  bool
	}{
		{[]string{"a", "b", "c"}, true}, {[]string{"a", "c"}, true}, {[]string{"a", "d"}, false}, {nil, false},
	} {
		alive := make(map[string]bool)
		for _, id := range c.alive {
			alive[id] = true
		}
		if got := lives(s, alive); got != c.want {
			t.Errorf("with %v alive: %v", c.alive, got)
		}
	}
}

// TestViews: the leader's word counts, of two the one of the later term; what the
// map wants besides is shown.
func TestViews(t *testing.T) {
	follower := Shard{ID: 1, Term: 9, Applied: 7, Replicas: []Replica{{Node: "a"}}}
	leader := Shard{ID: 1, Led: true, Term: 3, Replicas: []Replica{{Node: "a", Voter: true}}}
	later := Shard{ID: 1, Led: true, Term: 4, Replicas: []Replica{{Node: "b", Voter: true}}}
	for _, c := range []struct{ more, less Shard }{{leader, follower}, {later, leader}, {follower, Shard{ID: 1}}} {
		if !c.more.knowsMore(c.less) || c.less.knowsMore(c.more) {
			t.Errorf("%+v should count for more than %+v", c.more, c.less)
		}
	}
	leader.want(meta.Shard{Replicas: []meta.Replica{{Node: "a", Voter: true}, {Node: "c", Voter: true}}})
	if !slices.Equal(leader.Replicas, []Replica{{Node: "a", Voter: true}, {Node: "c", Voter: true, Wanted: true}}) {
		t.Errorf("replicas %+v", leader.Replicas)
	}
}
