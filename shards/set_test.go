package shards

import (
	"fmt"
	"testing"
)

// TestChoose: shares are as the weights, and the loss of one backend moves its own
// sessions alone, by weight again.
func TestChoose(t *testing.T) {
	set := Set{Backends: []Backend{{"a", 1}, {"b", 2}, {"c", 1}, {"none", 0}}}
	const n = 20000
	was, then := make(map[string]int), make(map[string]int)
	h, err := NewHasher(make([]byte, 32), 1)
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		k, _ := h.Key("llm", fmt.Sprint(i))
		before := set.Choose(k, nil)
		after := set.Choose(k, func(id string) bool { return id != "b" })
		was[before]++
		if before != "b" && after != before {
			t.Fatalf("session %d went from %s to %s, which had nothing to do with it", i, before, after)
		}
		if before == "b" {
			then[after]++
		}
	}
	for id, share := range map[string]float64{"a": 0.25, "b": 0.5, "c": 0.25} {
		if got := float64(was[id]) / n; got < share-0.02 || got > share+0.02 {
			t.Errorf("%s has %.3f of the sessions, want %.2f", id, got, share)
		}
	}
	if a := float64(then["a"]) / float64(was["b"]); a < 0.46 || a > 0.54 || then["a"]+then["c"] != was["b"] {
		t.Errorf("of b's %d sessions %v went elsewhere", was["b"], then)
	}
	if got := set.Choose(Key{}, func(string) bool { return false }); got != "" {
		t.Errorf("where none is usable it chose %q", got)
	}
}
