package rolling

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/starling-lb/starling/node/admin"
	"github.com/starling-lb/starling/node/api"
)

// TestReloadOfACluster: under load every node is given one version of the file after
// the other, node by node: weights, a policy, a time-out, a pool that comes and goes.
// No stream fails, no backend changes its state, no session its home; in the end all
// nodes go by the same.
func TestReloadOfACluster(t *testing.T) {
	t.Parallel()
	b1, b2, b3 := newOrigin(t, "b1"), newOrigin(t, "b2"), newOrigin(t, "b3")
	version := make([]int, 3) // of each node's file
	f := newFleet(t, 3, func(i int) string {
		v, more := version[i], ""
		if v%2 == 1 {
			more = fmt.Sprintf("  more: {backends: [{id: m1, url: %q}], backend: {engine: none}}\n", b1)
		}
		return fmt.Sprintf(`reload: {watch: %v}
pools:
  llm:
    policy: %s
    backends: [{id: b1, url: %q, weight: %d}, {id: b2, url: %q}, {id: b3, url: %q}]
    backend: {engine: none}
    health: {interval: 300ms, timeout: 10s}
    sticky: {bind_timeout: 30s}
    rebalance: {enabled: false}
    timeouts: {stream_idle: %dm}
%s`, v >= watched, []string{"p2c", "least_connections"}[v/2%2], b1, 1+v, b2, b3, 5+v, more)
	})
	l := f.newLoad()
	f.eventually(func() string {
		if n := l.known(); n < len(sessions()) {
			return fmt.Sprintf("%d sessions have a home", n)
		}
		return ""
	})
	places, homes := f.places(0), f.homes(0)
	var feeds []admin.Feed
	for _, n := range f.nodes {
		feed, err := n.Events("", 0)
		if err != nil {
			t.Fatal(err)
		}
		defer feed.Close()
		feeds = append(feeds, feed)
	}
	for v := 1; v <= watched; v++ {
		for i, n := range f.nodes {
			version[i] = v
			f.write(i)
			if got, err := n.Reload(t.Context()); err != nil || !got.Changed {
				t.Errorf("n%d, version %d: %+v, %v", i+1, v, got, err)
			}
		}
		f.goBy(v)
	}
	// From here on nobody tells the nodes: they look at the file.
	for i := range f.nodes {
		version[i] = watched + 1
		f.write(i)
	}
	f.goBy(watched + 1)
	f.spoil(1)
	if now := f.places(0); now != places {
		t.Errorf("replicas are at\n%s, and were at\n%s", now, places)
	}
	if now := f.homes(2); !maps.Equal(now, homes) {
		t.Errorf("sessions live at\n%v, and lived at\n%v", now, homes)
	}
	l.stop()
	for _, text := range l.wrong() {
		t.Error(text)
	}
	for i, feed := range feeds {
		for _, e := range happened(feed) {
			if e.Kind == api.StateEvent && e.Backend != "m1" || e.Kind == api.PanicEvent || e.Kind == api.MoveEvent {
				t.Errorf("n%d: %+v", i+1, e)
			}
		}
	}
	t.Logf("%d streams", l.served())
}

// watched is the last version that nodes are told of; from it on they look themselves.
const watched = 2

// goBy waits until all nodes go by a version: by its weight and policy, which they
// agree on, and by one hash.
func (f *fleet) goBy(version int) {
	f.t.Helper()
	want := fmt.Sprintf("weight %d, policy %s", 1+version, []string{"p2c", "least_connections"}[version/2%2])
	f.eventually(func() string {
		var hashes []string
		for i := range f.nodes {
			var b api.Backends
			var p api.Pools
			var s api.Status
			for path, into := range map[string]any{"backends": &b, "pools": &p, "status": &s} {
				if err := f.admin[i].Get(f.t.Context(), into, path); err != nil {
					return err.Error()
				}
			}
			if got := is(b, p); got != want {
				return fmt.Sprintf("n%d goes by %s, want %s", i+1, got, want)
			}
			hashes = append(hashes, s.ConfigHash)
		}
		for i := range f.nodes {
			var m api.Members
			if err := f.admin[i].Get(f.t.Context(), &m, "members"); err != nil {
				return err.Error()
			}
			for _, other := range m.Members {
				if !slices.Contains(hashes, other.ConfigHash) {
					return fmt.Sprintf("n%d says that %s goes by %s, not by %v", i+1, other.Name, other.ConfigHash, hashes)
				}
			}
		}
		return ""
	})
}

func is(b api.Backends, p api.Pools) string {
	text := ""
	for _, one := range b.Backends {
		if one.ID == "b1" {
			text = fmt.Sprintf("weight %d", one.Weight)
		}
	}
	for _, one := range p.Pools {
		if one.Name == "llm" {
			text += ", policy " + one.Policy
		}
	}
	return text
}

// spoil has a node find a half-written file: it says so, and goes on by the one
// before.
func (f *fleet) spoil(i int) {
	f.t.Helper()
	before := f.nodes[i].Status().ConfigHash
	text := f.text(i)
	if err := os.WriteFile(f.path(i), []byte(text[:len(text)*3/4]), 0o600); err != nil {
		f.t.Fatal(err)
	}
	feed, err := f.nodes[i].Events("", 0)
	if err != nil {
		f.t.Fatal(err)
	}
	defer feed.Close()
	f.eventually(func() string {
		for _, e := range happened(feed) {
			if e.Kind == api.ReloadEvent && strings.Contains(e.Reason, "the configuration in force stays") {
				return ""
			}
		}
		return "nobody says that the file is broken"
	})
	if now := f.nodes[i].Status().ConfigHash; now != before {
		f.t.Errorf("half a file changed the configuration from %s to %s", before, now)
	}
}

// happened is what a feed has brought until now.
func happened(feed admin.Feed) (all []api.Event) {
	for {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
		list, err := feed.Next(ctx)
		cancel()
		if err != nil {
			return all
		}
		all = append(all, list...)
	}
}
