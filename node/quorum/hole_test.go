package quorum

import (
	"encoding/binary"
	"fmt"
	"path/filepath"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/starling-lb/starling/shards/meta"
)

// pierce deletes one entry from the middle of every log in a node's file, and
// tells how many logs are long enough to have a middle.
func pierce(t *testing.T, dir string) (logs int) {
	t.Helper()
	db, err := bbolt.Open(filepath.Join(dir, "raft.db"), 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	bySlot := map[uint64][]uint64{}
	err = db.Update(func(tx *bbolt.Tx) error {
		b := tx.Bucket([]byte("logs"))
		err := b.ForEach(func(k, _ []byte) error {
			if n := binary.BigEndian.Uint64(k); n<<16>>16 < 1<<47 { // the rest is no entry
				bySlot[n>>48] = append(bySlot[n>>48], n)
			}
			return nil
		})
		for _, entries := range bySlot {
			if err == nil && len(entries) > 4 {
				logs++
				err = b.Delete(binary.BigEndian.AppendUint64(nil, entries[len(entries)/2]))
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	return logs
}

// whole says what keeps every shard from having three voters that keep up.
func whole(t *testing.T, q *Quorum) string {
	all := q.Shards(t.Context())
	if len(all) < 2 {
		return fmt.Sprintf("%d shards are known", len(all))
	}
	for _, s := range all {
		up := 0
		for _, r := range s.Replicas {
			if r.Voter && !r.Wanted && r.Match > 0 && r.Lag == 0 {
				up++
			}
		}
		if up != 3 || !s.Led {
			return fmt.Sprintf("shard %d: %d voters keep up: %+v", s.ID, up, s)
		}
	}
	return ""
}

// TestBrokenLogsAreMadeAnew: a node whose logs have lost entries, meta's among
// them, gets other replicas in their place and votes again as they do.
func TestBrokenLogsAreMadeAnew(t *testing.T) {
	w := &town{peers: make(map[string]Peer)}
	dirs := map[string]string{"a": t.TempDir(), "b": t.TempDir(), "c": t.TempDir()}
	nodes := map[string]*Quorum{}
	for id, dir := range dirs {
		nodes[id] = w.settle(t, id, dir, 3)
	}
	eventually(t, func() string { return whole(t, nodes["a"]) })
	for s := range 30 {
		if _, err := nodes["a"].Router().Bind(t.Context(), "llm", fmt.Sprint(s), "b1"); err != nil {
			t.Fatal(err)
		}
	}
	before := lifeOf(nodes["c"].keeper.Own())
	halt(t, nodes["c"])
	if logs := pierce(t, dirs["c"]); logs < 3 {
		t.Fatalf("only %d logs have a middle", logs)
	}
	nodes["c"] = w.settle(t, "c", dirs["c"], 3)
	eventually(t, func() string { return whole(t, nodes["a"]) })
	if after := lifeOf(nodes["c"].keeper.Own()); after[0] == before[0] {
		t.Errorf("meta's replica has life %d as before", after[0])
	}
	for s := range 30 {
		if b, ok, err := nodes["c"].Router().Read(t.Context(), "llm", fmt.Sprint(s)); err != nil || !ok || b.Backend != "b1" {
			t.Errorf("session %d: %+v, %v, %v", s, b, ok, err)
		}
	}
}

// lifeOf is the life of each shard's replica.
func lifeOf(own []meta.Own) map[int]uint64 {
	lives := map[int]uint64{}
	for _, o := range own {
		lives[o.Shard] = o.Life
	}
	return lives
}
