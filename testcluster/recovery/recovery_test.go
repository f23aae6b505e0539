package recovery

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/starling-lb/starling/node"
	"github.com/starling-lb/starling/node/api"
	"github.com/starling-lb/starling/shards/meta"
)

// weigh has a node change a backend's weight, as soon as the cluster agrees.
func (w *town) weigh(i int, backend string, weight int) {
	w.t.Helper()
	w.until(func() string {
		if err := w.admin(i).Post(w.t.Context(), api.Weight{Weight: weight}, "backends", backend, "weight"); err != nil {
			return err.Error()
		}
		return ""
	})
	w.weighs(i, backend, weight)
}

// weighs waits until a node says that a backend has a weight.
func (w *town) weighs(i int, backend string, weight int) {
	w.t.Helper()
	w.until(func() string {
		var l api.Backends
		if err := w.admin(i).Get(w.t.Context(), &l, "backends"); err != nil {
			return err.Error()
		}
		for _, b := range l.Backends {
			if b.ID == backend && b.Weight == weight {
				return ""
			}
		}
		return fmt.Sprintf("node %d: %s has not weight %d: %+v", i, backend, weight, l.Backends)
	})
}

// TestOldMajorityComesBack: two of three nodes are taken for lost, and the third is
// recovered. Then they come back, with a majority of what there was before and a
// decision of their own. They decide nothing more: the cluster is one, and as the
// recovered node says.
func TestOldMajorityComesBack(t *testing.T) {
	t.Parallel()
	w := begin(t, 3)
	w.moveIn(20, 0, 1, 2)
	w.Kill(0)
	w.weigh(1, "b1", 7) // the two agree on that
	w.weighs(2, "b1", 7)
	w.Kill(1)
	w.Kill(2)
	cfg := node.DefaultConfig()
	cfg.Node.DataDir = w.dirs[0]
	r, err := node.Recover(cfg)
	if err == nil {
		err = errors.Join(r.Do(), r.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	next := r.Generation()
	w.restart(0)
	w.weigh(0, "b2", 5) // and the one on this
	w.restart(1, 2)
	for i := range 3 {
		w.weighs(i, "b1", 1)
		w.weighs(i, "b2", 5)
		w.until(func() string {
			all, err := w.shards(i)
			if err != nil || len(all) == 0 || all[0].Incarnation != next || all[0].Leader == "" {
				return fmt.Sprintf("node %d: shard 0 is %+v, %v", i, all[:min(1, len(all))], err)
			}
			return ""
		})
	}
	w.whole(3, 0, 1, 2)
	w.stayed(0, 1, 2)
}

// TestOlderCopyPutBack: a node's directory is put back as it was before the node ran
// last. It is noticed: none of its replicas is what it was, and no session moves.
func TestOlderCopyPutBack(t *testing.T) {
	t.Parallel()
	w := begin(t, 3)
	w.moveIn(20, 0, 1, 2)
	w.Kill(2)
	older := w.kept(2)
	w.restart(2)
	w.whole(3, 0, 1, 2)
	lives := w.lives(2)
	w.until(func() string { // the run that the copy does not know is known to the others
		m, err := meta.Load(w.dirs[0])
		if err != nil {
			return err.Error()
		}
		if run := w.run(2); m.Nodes[w.id(2)].Run != run {
			return fmt.Sprintf("its run is %d, and known is %d", run, m.Nodes[w.id(2)].Run)
		}
		return ""
	})
	w.Kill(2)
	w.putBack(2, older)
	w.restart(2)
	w.until(func() string {
		for shard, life := range w.lives(0) { // by the others' word
			if life == lives[shard] {
				return fmt.Sprintf("shard %d has the replica that it had, %d", shard, life)
			}
		}
		return ""
	})
	w.whole(3, 0, 1, 2)
	w.stayed(0, 1, 2)
}

// id is a node's.
func (w *town) id(i int) string {
	w.t.Helper()
	var s api.Status
	if err := w.admin(i).Get(w.t.Context(), &s, "status"); err != nil {
		w.t.Fatal(err)
	}
	return s.Node.ID
}

// run is the number of a node's last run, by its own directory.
func (w *town) run(i int) uint64 {
	w.t.Helper()
	text, err := os.ReadFile(filepath.Join(w.dirs[i], "runs.json"))
	if err != nil {
		w.t.Fatal(err)
	}
	var kept struct{ Body struct{ Runs []uint64 } }
	if err := json.Unmarshal(text, &kept); err != nil || len(kept.Body.Runs) == 0 {
		w.t.Fatalf("%s: %v", text, err)
	}
	return kept.Body.Runs[len(kept.Body.Runs)-1]
}

// lives is the life of the third node's replica in each shard, as a node knows it.
func (w *town) lives(by int) map[int]uint64 {
	w.t.Helper()
	m, err := meta.Load(w.dirs[by])
	if err != nil {
		w.t.Fatal(err)
	}
	lives := map[int]uint64{}
	for i, s := range m.Shards {
		for _, r := range s.Replicas {
			if m.Nodes[r.Node].Name == "n3" {
				lives[i] = r.Life
			}
		}
	}
	return lives
}

// TestShardLostWhole: the only replica of some shards is lost with its node. They
// are made anew with nothing, once an operator says so, and the sessions that the
// other nodes remember stay where they are, in higher epochs.
func TestShardLostWhole(t *testing.T) {
	t.Parallel()
	w := begin(t, 1)
	all, err := w.shards(0)
	if err != nil {
		t.Fatal(err)
	}
	lost := 0 // a node that meta does not live on, and some shard does
	for _, s := range all[1:] {
		if s.Leader != all[0].Leader {
			lost = int(s.Leader[1] - '1')
		}
	}
	rest := []int{(lost + 1) % 3, (lost + 2) % 3}
	w.moveIn(20, rest...)
	name, remade := fmt.Sprint("n", lost+1), map[int]bool{}
	for _, s := range all[1:] {
		if s.Leader != name {
			continue
		}
		remade[s.ID] = true
		for more := 20; !w.livesIn(s.ID); more++ { // of four shards one may have none of the first twenty, by chance
			w.movesIn(fmt.Sprint("session ", more), rest...)
		}
	}
	w.Kill(lost)
	for id := range remade {
		shard := fmt.Sprint(id)
		// The others have to see first that it is gone: it is waited for.
		if err := w.admin(rest[0]).Post(t.Context(), nil, "shards", shard, "reset"); err == nil || !strings.Contains(err.Error(), "--empty") {
			t.Fatalf("of shard %s nothing is left, and its reset says %v", shard, err)
		}
		w.until(func() string {
			err := w.admin(rest[0]).Post(t.Context(), nil, "shards", shard, "empty")
			if err != nil && !strings.Contains(err.Error(), "makes it anew already") { // the one before was done, and took too long to say so
				return err.Error()
			}
			return ""
		})
	}
	w.stayed(rest...)
	told := 0
	for session, was := range w.homes {
		h, err := w.agreed(rest[0], session)
		if err != nil || remade[was.Shard] != (h.Epoch > was.Epoch) {
			t.Errorf("%s of shard %d had epoch %d and has %d, %v", session, was.Shard, was.Epoch, h.Epoch, err)
		}
		if remade[was.Shard] {
			told++
		}
	}
	if told == 0 {
		t.Errorf("no session of %s's shards was there to be told of", name)
	}
}
