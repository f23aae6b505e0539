package quorum

import (
	"strings"
	"testing"

	"github.com/starling-lb/starling/shards/meta"
)

// TestWhoHasMetAClusterFoundsNone: a node that may found alone meets a cluster that it
// cannot be let into yet. When that one is not there any more, it still founds none.
func TestWhoHasMetAClusterFoundsNone(t *testing.T) {
	w := &town{peers: map[string]Peer{"s": {ID: "s", Name: "lb-s", Cluster: "c", Alive: true, RPC: "127.0.0.1:1"}}}
	q := w.settle(t, "n", t.TempDir(), 1)
	waits := func(what string) {
		t.Helper()
		eventually(t, func() string {
			if q.Cluster() != "" {
				t.Fatalf("it has founded a cluster, and was to wait for %q", what)
			}
			if why := q.Waits(); !strings.Contains(why, what) {
				return "it waits for: " + why
			}
			return ""
		})
	}
	change := func(s func(map[string]Peer)) {
		w.mu.Lock()
		defer w.mu.Unlock()
		s(w.peers)
	}
	waits("lb-s")
	change(func(all map[string]Peer) { s := all["s"]; s.Alive = false; all["s"] = s })
	waits("no node of cluster c runs")
	change(func(all map[string]Peer) { delete(all, "s") })
	waits("cluster c was here")
}

// TestDeadNodesHaveAClusterToo: who meets a dead node of a cluster does not found
// another; a live one of a cluster comes first.
func TestDeadNodesHaveAClusterToo(t *testing.T) {
	w := &town{peers: map[string]Peer{
		"a": {ID: "a", Cluster: "old"}, "b": {ID: "b", Cluster: "new", Alive: true}, "c": {ID: "c", Expect: 1}, "d": {ID: "d", Expect: 1, Alive: true, Hosts: true},
	}}
	q := &Quorum{o: Options{Around: seat{w, "d"}, Self: Peer{ID: "d"}}}
	if f := meta.Found("d", q.newcomers()); f.Join != "new" {
		t.Errorf("beside a live node of a cluster: %+v", f)
	}
	delete(w.peers, "b")
	if f := meta.Found("d", q.newcomers()); f.Join != "old" || f.Found {
		t.Errorf("beside a dead one: %+v", f)
	}
	delete(w.peers, "a")
	if f := meta.Found("d", q.newcomers()); !f.Found || f.Sees != 1 {
		t.Errorf("beside a dead one that had none: %+v", f)
	}
}
