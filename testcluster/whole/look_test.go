package whole

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/starling-lb/starling/node/api"
	"github.com/starling-lb/starling/proxy/backend"
)

// One node tells of all: how each is, what runs on it, how it sees the backends. Who
// does not answer is named at once, with why, and so is who is dead. Who has no
// majority behind it can have nobody else do anything, and does it alone if told so.
func TestOneNodeTellsOfAll(t *testing.T) {
	t.Parallel()
	c := begin(t, outLong) // a busy machine is no sick backend
	for _, i := range []int{0, 2, 0} {
		stream(t, c, i)
	}
	eventually(t, func() string {
		l := streams(t, c, 1, "2")
		var from []string
		for _, s := range l.Streams {
			from = append(from, s.Node)
		}
		counts := map[string]int64{}
		for _, n := range l.Nodes {
			counts[n.Name] = n.Count
		}
		if !slices.Equal(from, []string{"n1", "n3"}) || counts["n1"] != 2 || counts["n2"] != 0 || counts["n3"] != 1 || len(l.Nodes) != 3 {
			return fmt.Sprintf("the two oldest are of %v, all are %v", from, counts)
		}
		return ""
	})
	eventually(t, func() string {
		var b api.Backends
		if err := admin(t, c, 1).With("scope", "cluster").Get(t.Context(), &b, "backends"); err != nil {
			return err.Error()
		}
		var seen []string
		local := int64(0)
		for _, one := range b.Backends {
			seen = append(seen, one.ID+" "+one.Node)
			local += one.InFlight.Local
		}
		if want := []string{"b1 n1", "b1 n2", "b1 n3", "b2 n1", "b2 n2", "b2 n3"}; !slices.Equal(seen, want) || local != 3 {
			return fmt.Sprintf("backends are %v with %d streams, want %v with 3; %+v", seen, local, want, b.Nodes)
		}
		return ""
	})
	eventually(t, func() string {
		var p api.Pools
		if err := admin(t, c, 2).With("scope", "cluster").Get(t.Context(), &p, "pools"); err != nil {
			return err.Error()
		}
		if len(p.Pools) != 3 || p.Pools[0].Node != "n1" || p.Pools[0].InFlight != 2 || len(p.Nodes) != 3 {
			return fmt.Sprintf("pools are %+v; %+v", p.Pools, p.Nodes)
		}
		return ""
	})

	eventually(t, func() string { // a lone voter would be a majority
		var l api.ShardList
		if err := admin(t, c, 2).Get(t.Context(), &l, "shards"); err != nil || len(l.Shards) == 0 {
			return fmt.Sprintf("%+v, %v", l, err)
		}
		voters := 0
		for _, r := range l.Shards[0].Replicas {
			if r.Role == api.LeaderRole || r.Role == api.VoterRole {
				voters++
			}
		}
		if voters < 3 {
			return fmt.Sprintf("shard 0 has %d voters: %+v", voters, l.Shards[0])
		}
		return ""
	})
	told(t, c, 2, "admit", "") // so the record is agreed on, as it knows
	c.Partition([]int{2})
	alone, refused := admin(t, c, 2), make(chan error, 1)
	go func() { refused <- alone.Post(t.Context(), nil, "backends", "b1", "eject") }()
	began := time.Now()
	s := status(t, c, 0)
	if took := time.Since(began); took > 30*time.Second { // 2 s and what a busy machine makes of them
		t.Errorf("a node that does not answer held the others' answers up for %v", took)
	}
	if s.Nodes[0].Status == nil || s.Nodes[2].Error == "" || s.Nodes[2].Status != nil || s.Nodes[2].Name != "n3" {
		t.Errorf("with n3 cut off: %+v", s.Nodes)
	}
	eventually(t, func() string {
		if n := status(t, c, 0).Nodes[1]; n.Status == nil {
			return n.Name + " beside one that is cut off: " + n.Error
		}
		return ""
	})
	eventually(t, func() string {
		s := status(t, c, 0)
		if n := s.Nodes[2]; n.State != backend.MemberDead || n.Error != "it is dead, as this node sees it, and was not asked" {
			return fmt.Sprintf("n3 is %s: %s", n.State, n.Error)
		}
		return ""
	})
	if err := <-refused; err == nil || !strings.Contains(err.Error(), "scope=node") {
		t.Errorf("a node without a majority has all eject: %v", err)
	}
	if err := alone.With("scope", "node").Post(t.Context(), nil, "backends", "b1", "eject"); err != nil {
		t.Error(err)
	}
	var b api.Backends
	if err := alone.Get(t.Context(), &b, "backends"); err != nil || b.Backends[0].ID != "b1" || b.Backends[0].State != backend.Ejected {
		t.Errorf("alone it has %+v, %v", b.Backends[0], err)
	}
	c.Heal()
	eventually(t, func() string {
		return all(status(t, c, 0).Nodes, func(n api.NodeAnswer) string { return n.Error })
	})
}
