package membership

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/starling-lb/starling/node"
	"github.com/starling-lb/starling/node/api"
)

const (
	freshFor = 5 * time.Second // what was bound so shortly before a loss may be known to the lost ones alone
	anewTime = 4 * time.Minute // for all to be well after one: the lost ones have to be dead, and others have to have all that they had
)

// lose has two nodes that hold shard 0 be lost with their disks at once, and an
// operator do what is said to do: recover shard 0 on one that is left, and make anew
// what has no leader. Then every session is where it was, but for those that were new.
func (w *town) lose() {
	if w.moving() {
		return // one that leaves would be held up, and counts as lost by then
	}
	all := w.running()
	if len(all) < 3 {
		return
	}
	for _, i := range all {
		eventually(w.t, anewTime, func() string { return settled(w.t, w.node(i), 3) })
	}
	lost, left := w.holders(all)
	if len(lost) < 2 {
		return
	}
	before, began := w.generation(left), time.Now()
	w.fall(append(lost, left))
	for _, i := range lost {
		w.c.Kill(i)
		if err := os.RemoveAll(w.dirs[i]); err != nil {
			w.t.Fatal(err)
		}
	}
	w.c.Kill(left)
	w.forget()
	w.recover(left)
	for _, i := range append([]int{left}, lost...) {
		if err := w.c.Restart(w.t.Context(), i); err != nil {
			w.t.Fatal(err)
		}
		w.met(i)
	}
	w.say("n%d has begun again, n%d and n%d are new", left+1, lost[0]+1, lost[1]+1)
	w.makeAnew(left)
	for _, i := range w.running() {
		eventually(w.t, anewTime, func() string { return settled(w.t, w.node(i), 3) })
		if now := w.generation(i); now <= before {
			w.fault("generation %d came after %d on n%d", now, before, i+1)
		}
	}
	w.judged(true)
	w.losses++
	w.say("all is well after the loss")
	w.t.Logf("n%d and n%d were lost, shard 0 was recovered on n%d, and all is well %v later", lost[0]+1, lost[1]+1, left+1, time.Since(began).Round(time.Second))
}

// moving tells whether a node leaves, or is set aside.
func (w *town) moving() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.drained > 0 {
		return true
	}
	for i := range w.ids {
		if !w.up[i] && !w.gone[i] {
			return true
		}
	}
	return false
}

// holders are two nodes that vote in shard 0, and a third.
func (w *town) holders(all []int) (lost []int, left int) {
	left = -1
	meta := get[api.ShardList](w.t, w.node(all[0]), "shards").Shards[0]
	for _, i := range all {
		for _, r := range meta.Replicas {
			switch {
			case r.ID != w.ids[i]:
			case left < 0:
				left = i
			case len(lost) < 2:
				lost = append(lost, i)
			}
		}
	}
	return lost, left
}

func (w *town) generation(i int) uint32 {
	return get[api.ShardList](w.t, w.node(i), "shards").Shards[0].Incarnation
}

// fall notes that nodes are gone; who leads and who votes is not judged until all is
// well again.
func (w *town) fall(nodes []int) {
	w.judged(false)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, i := range nodes {
		w.up[i], w.gone[i] = false, true
	}
}

func (w *town) judged(judged bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.loose = !judged
	w.era++
	clear(w.doubts)
}

// forget has the sessions be anywhere that were new when nodes were lost.
func (w *town) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for session, at := range w.since {
		if time.Since(at) < freshFor {
			delete(w.homes, session)
			delete(w.since, session)
		}
	}
}

func (w *town) recover(i int) {
	w.say("shard 0 is recovered on n%d", i+1)
	cfg := node.DefaultConfig()
	cfg.Node.DataDir = w.dirs[i]
	r, err := node.Recover(cfg)
	if err == nil {
		err = errors.Join(r.Do(), r.Close())
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// makeAnew resets the shards that have no leader, by one node's word, until all have
// one.
func (w *town) makeAnew(by int) {
	eventually(w.t, anewTime, func() string {
		wrong := ""
		for _, s := range get[api.ShardList](w.t, w.node(by), "shards").Shards {
			if s.Leader != "" {
				continue
			}
			wrong = fmt.Sprintf("shard %d has no leader", s.ID)
			if s.ID == 0 || s.Phase != "ready" {
				continue
			}
			err := admin(w.t, w.node(by)).Post(w.t.Context(), nil, "shards", fmt.Sprint(s.ID), "reset")
			w.say("shard %d is made anew: %v", s.ID, err)
			if err != nil && strings.Contains(err.Error(), "--empty") {
				w.fault("nothing is left of shard %d: %v", s.ID, err)
			}
		}
		return wrong
	})
}
