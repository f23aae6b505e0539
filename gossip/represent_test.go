package gossip

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestRepresentatives(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		zones := rapid.IntRange(1, 4).Draw(t, "zones")
		var nodes []candidate
		for i := range rapid.IntRange(1, 20).Draw(t, "nodes") {
			id := fmt.Sprintf("node-%d", i)
			nodes = append(nodes, candidate{id, markOf(id), fmt.Sprint("z", i%zones)})
		}
		k, backend := rapid.IntRange(1, 5).Draw(t, "k"), rapid.Uint64().Draw(t, "backend")
		got := representatives(backend, nodes, k)
		if len(got) != min(k, len(nodes)) {
			t.Fatalf("%d of %d nodes, want %d", len(got), len(nodes), k)
		}
		other := representatives(backend, rapid.Permutation(nodes).Draw(t, "order"), k)
		if !slices.Equal(got, other) {
			t.Fatalf("another order gives %v, not %v", other, got)
		}
		used := map[string]bool{}
		for _, n := range got {
			used[n.zone] = true
		}
		there := map[string]bool{}
		for _, n := range nodes {
			there[n.zone] = true
		}
		if len(used) != min(len(got), len(there)) {
			t.Fatalf("%d of %d zones among %d", len(used), len(there), len(got))
		}
		if zones > 1 {
			return
		}
		i := rapid.IntRange(0, len(nodes)-1).Draw(t, "dead") // nobody moves but what was the dead one's
		left := representatives(backend, slices.Delete(slices.Clone(nodes), i, i+1), k)
		for _, n := range got {
			if n != nodes[i] && !slices.Contains(left, n) {
				t.Fatalf("%s lost the backend when %s died", n.id, nodes[i].id)
			}
		}
	})
}

func TestRepresentativesAreSpread(t *testing.T) {
	var nodes []candidate
	for i := range 10 {
		id := fmt.Sprint("n", i)
		nodes = append(nodes, candidate{id, markOf(id), ""})
	}
	share := map[string]int{}
	for b := range 1000 {
		for _, n := range representatives(markOf(fmt.Sprint("b", b)), nodes, 3) {
			share[n.id]++
		}
	}
	for id, n := range share {
		if n < 200 || n > 400 {
			t.Errorf("%s has %d of 3000 checks, want about 300", id, n)
		}
	}
}
