package gossip

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"
)

// party is what decides whether two nodes are of one cluster.
type party struct {
	keys    string // numbers of testKey
	label   string
	cluster string
}

func (p party) configure(cfg *Config, o *Options) {
	for _, k := range []byte(p.keys) {
		cfg.Keys = append(cfg.Keys, testKey(k))
	}
	cfg.Label, o.Self.Cluster = p.label, p.cluster
}

// hears tells whether p can read what the other writes.
func (p party) hears(other party) bool {
	if p.label != other.label || (p.keys == "") != (other.keys == "") {
		return false
	}
	return p.keys == "" || slices.Contains([]byte(p.keys), other.keys[0])
}

// TestEveryPair: of all pairs of nodes that have one another as seeds, started in
// either order, just those become a cluster that have a common key, one label and
// no two clusters; the others know nobody, nothing of what they say is taken in,
// and both say that they refuse.
func TestEveryPair(t *testing.T) {
	var all []party
	for _, keys := range []string{"", "1", "2", "12"} {
		for _, label := range []string{"", "blue"} {
			for _, cluster := range []string{"", "one", "two"} {
				all = append(all, party{keys, label, cluster})
			}
		}
	}
	for _, a := range all {
		for _, b := range all {
			if a.hears(b) != b.hears(a) {
				continue // amid a rotation: one has the other's key and does not use it
			}
			one := a.hears(b) && (a.cluster == "" || b.cluster == "" || a.cluster == b.cluster)
			bubble(t, func(t *testing.T) {
				w := &world{t: t, net: newFakeNet()}
				defer w.end()
				w.pair(a, b, one)
			})
		}
	}
}

// pair starts two nodes, the first one first.
func (w *world) pair(a, b party, one bool) {
	for i, p := range []party{a, b} {
		c := w.make(i, p.configure)
		w.nodes = append(w.nodes, c)
		if err := c.Start(context.Background()); err != nil {
			w.t.Fatal(err)
		}
		if err := c.Publish(Record{LeaderHint, fmt.Sprint(i), 1, nil}); err != nil {
			w.t.Fatal(err)
		}
	}
	<-time.After(6 * time.Second)
	for i, c := range w.nodes {
		_, told := c.Record(LeaderHint, fmt.Sprint(1-i))
		refused := uint64(0)
		for _, cause := range []cause{causeKey, causePlain, causeSealed, causeLabel, causeCluster} {
			refused += c.count.refused[cause].Load()
		}
		if got := len(c.Members()); (got == 2) != one || told != one || (refused > 0) == one {
			w.t.Errorf("%+v and %+v: node %d knows %d, was told %v, refused %d; want one cluster: %v", a, b, i, got, told, refused, one)
		}
	}
}
