package quorum

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/starling-lb/starling/shards/meta"
)

// TestBootsGrow, also when the clock is put back or the file is damaged.
func TestBootsGrow(t *testing.T) {
	dir, now := t.TempDir(), time.Unix(1_800_000_000, 0)
	last := uint64(0)
	for i, at := range []time.Time{now, now, now.Add(-time.Hour), now.Add(time.Hour)} {
		got, err := nextBoot(dir, at)
		if err != nil || got <= last {
			t.Fatalf("start %d: %d after %d, %v", i, got, last, err)
		}
		last = got
	}
	if err := os.WriteFile(filepath.Join(dir, bootFile), []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := nextBoot(dir, now.Add(2*time.Hour)); err != nil || got <= last {
		t.Errorf("after damage: %d after %d, %v", got, last, err)
	}
	if _, err := nextBoot(filepath.Join(dir, "gone"), now); err == nil {
		t.Error("a directory that is not there was taken")
	}
}

// TestAnOrderAsksProxiesToo: a node on which a recovery was ordered waits longer than
// others at its start, and heeds what a node says in gossip that hosts nothing.
func TestAnOrderAsksProxiesToo(t *testing.T) {
	dir := t.TempDir()
	m := meta.NewMap("a", 3, 3, Level, []meta.Newcomer{{ID: "a", Hosts: true, Level: Level}, {ID: "p", Level: Level}})
	if err := m.Save(dir); err != nil {
		t.Fatal(err)
	}
	r, err := meta.Recover(dir, "a")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Do(); err != nil {
		t.Fatal(err)
	}
	w := &town{peers: make(map[string]Peer)}
	time.AfterFunc(backTime+50*time.Millisecond, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.peers["p"] = Peer{ID: "p", Alive: true, RPC: "127.0.0.1:1", Cluster: m.Cluster, Generation: r.Generation() + 1}
	})
	q := w.settle(t, "a", dir, 1)
	if got := q.Map().Generation(); got != 1 || q.keeper.Recovering() {
		t.Errorf("it begins generation %d, and a proxy knows %d", got, r.Generation()+1)
	}
}
