package shards

import (
	"bytes"
	"fmt"
	"testing"
)

func TestKeysFillShardsEvenly(t *testing.T) {
	h, err := NewHasher(bytes.Repeat([]byte{7}, 32), 16)
	if err != nil {
		t.Fatal(err)
	}
	n := make(map[uint32]int)
	seen := make(map[Key]bool)
	for i := range 16000 {
		k, shard := h.Key("llm", fmt.Sprint("session-", i))
		n[shard]++
		seen[k] = true
	}
	for shard := uint32(1); shard <= 16; shard++ {
		if n[shard] < 800 || n[shard] > 1200 {
			t.Errorf("shard %d has %d of 16000 sessions", shard, n[shard])
		}
	}
	if len(seen) != 16000 || len(n) != 16 {
		t.Errorf("%d keys in %d shards", len(seen), len(n))
	}
	a, _ := h.Key("ab", "c")
	b, _ := h.Key("a", "bc")
	other, _ := NewHasher(bytes.Repeat([]byte{8}, 32), 16)
	c, _ := other.Key("ab", "c")
	if a == b || a == c {
		t.Error("pool, name and secret do not all count")
	}
	if _, err := NewHasher([]byte("short"), 16); err == nil {
		t.Error("a secret that can be guessed was taken")
	}
}
