package quorum

import (
	"fmt"
	"testing"
)

// TestAnEarlierLifeGoesAlone: what is left of a replica, and could not be deleted at
// once, is deleted while the next life of it runs, which goes on.
func TestAnEarlierLifeGoesAlone(t *testing.T) {
	w := &town{peers: make(map[string]Peer)}
	q := w.settle(t, "a", t.TempDir(), 1)
	eventually(t, func() string {
		if count, led, _, _ := q.Led(); count == 0 || led < count {
			return fmt.Sprintf("%d of %d shards are led", led, count)
		}
		return ""
	})
	for _, r := range q.keeper.Own() {
		earlier := r
		earlier.Life--
		if err := (host{q}).Delete(t.Context(), earlier); err != nil {
			t.Errorf("shard %d: %v", r.Shard, err)
		}
		if g := q.groups.Group(uint32(r.Shard)); g == nil || !g.State().Led {
			t.Errorf("shard %d: its replica has gone along", r.Shard)
		}
	}
}
