package quorum

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/starling-lb/starling/shards/meta"
)

const (
	settleEvery = 200 * time.Millisecond
	joinTime    = 2 * time.Second // for a member's answer
)

// settleLoop looks for a cluster to join, or founds one when all that it waits
// for are there, until this node has one.
func (q *Quorum) settleLoop(ctx context.Context) {
	tick := time.NewTicker(settleEvery)
	defer tick.Stop()
	for q.known.Load() == nil {
		if err := q.settle(ctx); err != nil {
			q.say(fmt.Sprintf("tries again: %v", err))
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// settle takes one step.
func (q *Quorum) settle(ctx context.Context) error {
	seen := q.newcomers()
	f := meta.Found(q.o.Self.ID, seen)
	q.mu.Lock()
	q.sees = f.Sees
	q.mu.Unlock()
	q.tell()
	switch {
	case f.Join != "":
		if q.met != f.Join { // from then on what keeps it out is said
			q.met = f.Join
			q.say(f.Reason)
		}
		return q.join(ctx, f.Join)
	case q.met != "":
		q.say(fmt.Sprintf("cluster %s was here, and none of its nodes is: start one of them. This node founds none beside it; if that cluster is gone for good, start this node again", q.met))
		return nil
	case f.Found && len(seen) == 1 && len(q.unheard()) > 0:
		q.say(fmt.Sprintf("no answer from %s (cluster.seeds): who founds alone while another cluster is down makes a second one. Start one that has the cluster; if none has, start this node without cluster.seeds, or set cluster.bootstrap_expect to the number of nodes on all of them. If a name stands for several nodes, it has to list those, too, that are not ready", strings.Join(q.unheard(), ", ")))
		return nil
	case f.Found && len(seen) == 1 && time.Since(q.began) < q.o.Wait:
		q.say("looks for a cluster to join, before it founds its own")
		return nil
	case f.Found:
		return q.found(ctx, seen)
	}
	q.say(f.Reason)
	return nil
}

// unheard are the seeds that do not answer.
func (q *Quorum) unheard() []string {
	if q.o.Unheard == nil {
		return nil
	}
	return q.o.Unheard()
}

// say logs what the founding waits for, once.
func (q *Quorum) say(reason string) {
	q.mu.Lock()
	news := q.waits != reason
	q.waits = reason
	q.mu.Unlock()
	if news {
		q.log.Info("no cluster yet", "waits", reason)
	}
}

// Waits says in words why there is no cluster yet; "" once there is one.
func (q *Quorum) Waits() string {
	if q.known.Load() != nil {
		return ""
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waits
}

// Place is where the other nodes know this one, if that is elsewhere.
func (q *Quorum) Place() string { return q.keeper.Place() }

// newcomers are the nodes as the founding looks at them: the live ones, then those of
// a cluster that were there.
func (q *Quorum) newcomers() []meta.Newcomer {
	var live, gone []meta.Newcomer
	for _, p := range q.peers() {
		n := meta.Newcomer{
			ID: p.ID, Name: p.Name, Zone: p.Zone, Hosts: p.Hosts, Level: p.Level, Cluster: p.Cluster, Expect: p.Expect, Sees: p.Sees,
		}
		switch {
		case p.Alive && (p.Expect > 0 || p.Cluster != ""):
			live = append(live, n)
		case p.Cluster != "":
			gone = append(gone, n)
		}
	}
	return append(live, gone...)
}

// join asks the live members of a cluster for its map, until one gives it.
func (q *Quorum) join(ctx context.Context, cluster string) error {
	var failed error
	for _, p := range q.peers() {
		if !p.Alive || p.Cluster != cluster || p.RPC == "" {
			continue
		}
		m, err := q.letIn(ctx, p.ID)
		if err == nil && m.Cluster != cluster {
			err = fmt.Errorf("it is of cluster %s, and gossip said %s", m.Cluster, cluster)
		}
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("node %s: %w", p.Name, err))
			continue
		}
		if err := q.keeper.Take(m); err != nil {
			return err
		}
		q.log.Info("joined a cluster", "cluster", cluster, "by", p.Name, "revision", m.Revision)
		return nil
	}
	if failed == nil {
		failed = fmt.Errorf("no node of cluster %s runs and says where its calls are answered; start one", cluster)
	}
	return failed
}

func (q *Quorum) letIn(ctx context.Context, node string) (*meta.Map, error) {
	ctx, cancel := context.WithTimeout(ctx, joinTime)
	defer cancel()
	return meta.Ask(ctx, neighbours{q}, node, neighbours{q}.Peers()[q.o.Self.ID].Node)
}

// found makes a cluster of all that are seen. The map is on disk before anything
// else: whatever happens then, this node goes on with it.
func (q *Quorum) found(ctx context.Context, seen []meta.Newcomer) error {
	m := meta.NewMap(q.o.Self.ID, q.o.Config.Count, q.o.Config.Replicas, Level, seen)
	if err := m.Save(q.o.Dir); err != nil {
		return err
	}
	if err := q.keeper.Found(ctx, m); err != nil {
		return fmt.Errorf("found the cluster: %w", err)
	}
	q.log.Info("founded a cluster", "cluster", m.Cluster, "nodes", len(seen), "shards", m.Count())
	return nil
}
