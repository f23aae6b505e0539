package meta

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// lookLoop looks once in a round, sooner while something is under way, and soon
// when nudged.
func (k *Keeper) lookLoop(look func(), nudged <-chan struct{}) {
	for k.ctx.Err() == nil {
		look()
		k.rest(shortest, nil)
		k.rest(k.pause(), nudged)
	}
}

func (k *Keeper) rest(d time.Duration, nudged <-chan struct{}) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-nudged:
	case <-k.ctx.Done():
	}
}

// pause is how long a loop rests.
func (k *Keeper) pause() time.Duration {
	m := k.Map()
	if m == nil {
		return hurry
	}
	for _, n := range m.Nodes {
		if n.State == Joining {
			return hurry
		}
	}
	for _, s := range m.Shards {
		if s.Step != nil || s.Phase != Ready {
			return hurry
		}
	}
	return round
}

// watchLoop takes each map as soon as it is applied here.
func (k *Keeper) watchLoop() {
	for {
		_, changed := k.o.Machine.Map() // before the look: nothing is missed
		k.adopt()
		select {
		case <-changed:
		case <-k.ctx.Done():
			return
		}
	}
}

// arrange has the replicas here be as the map says.
func (k *Keeper) arrange() {
	k.adopt()
	k.place(k.ctx)
}

// adopt takes the map as it is applied in this node's own replica of meta.
func (k *Keeper) adopt() {
	m, _ := k.o.Machine.Map()
	if m.Cluster == "" {
		return
	}
	if err := k.Take(m); err != nil {
		k.o.Log.Error("the map is not kept; this node goes on with the one before", "revision", m.Revision, "err", err)
	}
}

// place opens, closes and deletes this node's replicas as the map says.
func (k *Keeper) place(ctx context.Context) {
	k.placing.Lock()
	defer k.placing.Unlock()
	m := k.Map()
	if m == nil {
		return
	}
	for _, e := range Local(m, k.o.Self, k.Own(), k.isOpen) {
		if err := k.do(ctx, e); err != nil {
			k.o.Log.Error("a replica of this node is not as it should be; it is tried again", "shard", e.Own.Shard, "errand", string(e.Do), "err", err)
		}
	}
	own := k.Own()
	for _, r := range own {
		switch {
		case !m.runs(r, own):
		case k.doubts(r):
			k.distrust(ctx, r)
		case !k.isOpen(r):
			k.begin(ctx, k.resume(m, r))
		}
	}
}

// resume is how a replica that is noted opens. It may have ended, or its disk failed,
// before its group was made: then it makes it, of all that it was to begin with.
func (k *Keeper) resume(m *Map, r Own) Errand {
	e := Errand{Do: OpenIt, Own: r, Kept: true, Found: r.Founded && m.atFounding(r.Shard)}
	if r.Again && (r.Shard == 0 || m.Shards[r.Shard].Phase == Creating) {
		e.Found = true
	}
	if e.Found && r.Shard > 0 {
		e.Seeds = seeds(k.Own(), r)
	}
	return e
}

func (k *Keeper) isOpen(r Own) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	o, open := k.open[r.Shard]
	return open && o.Incarnation == r.Incarnation && o.Life == r.Life
}

func (k *Keeper) do(ctx context.Context, e Errand) error {
	r := e.Own
	switch e.Do {
	case OpenIt:
		if k.doubts(r) {
			return k.renew(ctx, r)
		}
		if err := k.note(append(k.Own(), r)); err != nil {
			return err
		}
		k.begin(ctx, e)
		return nil
	case CloseIt:
		k.o.Host.Close(ctx, r)
		k.shut(r)
		return nil
	}
	if m := k.Map(); m != nil && r.Shard < len(m.Shards) && r.Incarnation > m.Shards[r.Shard].Incarnation {
		k.o.Log.Warn("what is left of a later life of the shard, which the generation that gave way had made, is deleted: the shard goes on as the life that leads; sessions that only the later one knew are bound anew", "shard", r.Shard, "incarnation", r.Incarnation, "stands", m.Shards[r.Shard].Incarnation)
	}
	if err := k.o.Host.Delete(ctx, r); err != nil {
		return err
	}
	k.shut(r)
	delete(k.failed, r)
	return k.note(slices.DeleteFunc(k.Own(), func(o Own) bool { return o == r }))
}

// note writes this node's replicas down.
func (k *Keeper) note(all []Own) error {
	if err := saveOwn(k.o.files, owned{all}); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.own.Replicas = all
	return nil
}

func (k *Keeper) shut(r Own) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if o, open := k.open[r.Shard]; open && o.Incarnation == r.Incarnation && o.Life == r.Life {
		delete(k.open, r.Shard)
	}
}

// begin opens a replica that is noted.
func (k *Keeper) begin(ctx context.Context, e Errand) {
	r := e.Own
	if until, failed := k.failed[r]; failed && k.o.Now() < until {
		return
	}
	delete(k.failed, r)
	err, again := k.o.Host.Open(e), openRest
	if errors.Is(err, ErrHole) && !e.Found { // what was never made has nothing to forget
		again = round // what is to come comes with the map
		err = errors.Join(err, k.renew(ctx, r))
	}
	if err != nil {
		k.failed[r] = k.o.Now() + again
		k.o.Log.Error("a replica does not open; it is tried again", "shard", r.Shard, "in", again, "err", err)
		return
	}
	if r.Again {
		r.Again = false
		err = k.note(append(slices.DeleteFunc(k.Own(), func(o Own) bool { return o == e.Own }), r))
	}
	if err != nil {
		k.o.Log.Error("a replica is open, and that it was made anew is not noted", "shard", r.Shard, "err", err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.open[r.Shard] = r
}

// renew asks for another life of a replica whose log is broken, or perhaps gone: with
// what it forgot, its vote would count twice. The map then takes it away and gives the new one.
func (k *Keeper) renew(ctx context.Context, r Own) error {
	m := k.Map()
	s := m.Shards[r.Shard]
	if wanted, ok := s.Wants(k.o.Self); !ok || wanted.Life != r.Life {
		return nil // it goes anyway
	}
	s = s.renewed(k.o.Self)
	ctx, cancel := context.WithTimeout(ctx, stepTime)
	defer cancel()
	if _, err := k.Propose(ctx, Command{Op: OpShard, Number: r.Shard, Seen: s.Revision, Shard: &s}); err != nil {
		return fmt.Errorf("ask for a new life of the replica: %w", err)
	}
	return nil
}

// renewed is the shard with another life to come for the node's replica. Who was to
// keep its own until a step under way is done goes on keeping it: it may vote. A shard
// that is being made is still made of what it was to be made of.
func (s Shard) renewed(node string) Shard {
	s.Replicas = slices.Clone(s.Replicas)
	for i := range s.Replicas {
		if s.Replicas[i].Node == node {
			s.Replicas[i].Life = 0
		}
	}
	step := Step{Kind: Replace, Node: node, Reason: "the log of its replica is broken or gone"}
	if s.Step != nil {
		step.Leaving = s.Step.Leaving
		if s.Phase == Creating || s.Step.Kind == Regain {
			step.Kind, step.Node = s.Step.Kind, s.Step.Node
		}
	}
	s.Step = &step
	return s
}

// advance takes the next step of each group that this node leads, side by side.
func (k *Keeper) advance() {
	if k.fenced() {
		return // what this node's map wants is nothing any more
	}
	for _, shard := range k.idle() {
		k.start(func() { k.attendTo(shard) })
	}
}

// idle returns the open shards that are not busy, and has them busy.
func (k *Keeper) idle() (shards []int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for shard := range k.open {
		if !k.busy[shard] {
			k.busy[shard] = true
			shards = append(shards, shard)
		}
	}
	return shards
}

// attendTo takes steps of one group as long as there are some.
func (k *Keeper) attendTo(shard int) {
	defer func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		delete(k.busy, shard)
	}()
	for k.ctx.Err() == nil {
		ctx, cancel := context.WithTimeout(k.ctx, stepTime)
		again, err := k.step(ctx, shard)
		cancel()
		if err != nil {
			k.o.Log.Warn("a step of a group was not taken; it is tried again", "shard", shard, "err", err)
		}
		if !again || err != nil {
			return
		}
	}
}

// step takes the next step of a group, if it is led here and there is one.
func (k *Keeper) step(ctx context.Context, shard int) (again bool, err error) {
	st, ok := k.o.Groups.Status(shard)
	if !ok || !st.Open {
		k.forget(shard)
		return false, nil
	}
	if shard == 0 {
		if err := k.proposeFounding(ctx); err != nil {
			return false, err
		}
	}
	m := k.Map()
	if m == nil || shard >= len(m.Shards) {
		return false, nil
	}
	g := k.watch(shard, st)
	a := Next(m, shard, k.o.Self, g, st.Config)
	for a.Do == Transfer && !k.stays(a.Node) { // another may lead, or nobody
		g = g.passing(a.Node)
		a = Next(m, shard, k.o.Self, g, st.Config)
	}
	if a == (Action{}) {
		a = Spread(m.Shards[shard], k.lead(m, shard), k.o.Self, g, st.Config)
	}
	why := k.holdsUp(ctx, m, shard, a)
	k.stand(shard, why)
	if a.Do == Wait || why != "" {
		return false, nil
	}
	if err := k.o.Groups.Change(ctx, shard, a); err != nil {
		k.stand(shard, fmt.Sprintf("to %s failed, and is tried again: %v", a.Do, err))
		return false, fmt.Errorf("%s %s: %w", a.Do, a.Node, err)
	}
	k.o.Log.Info("a group has changed", "shard", shard, "step", string(a.Do), "peer", a.Node, "why", a.Why)
	return true, nil
}

// holdsUp says why an action is not taken now; "": it may be, or there is nothing
// to do.
func (k *Keeper) holdsUp(ctx context.Context, m *Map, shard int, a Action) string {
	switch {
	case a.Do == Wait:
		return a.Why
	case a.Do == Transfer && !k.mayHand(m, shard, a.Node):
		return fmt.Sprintf("node %s takes the lead a little later", m.name(a.Node))
	case a.Do == AddNonvoter && !k.awaits(ctx, shard, a):
		return fmt.Sprintf("node %s has not opened its replica yet", m.name(a.Node))
	case a.Do == AddVoter && !k.awaits(ctx, shard, a): // it may have died since it was heard, and one vote of two decides nothing
		return fmt.Sprintf("node %s does not say that its replica is open", m.name(a.Node))
	}
	return ""
}

// lead is who should lead a shard.
func (k *Keeper) lead(m *Map, shard int) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.spread.of != m {
		k.spread.of, k.spread.leaders = m, Leaders(m)
	}
	return k.spread.leaders[shard]
}

// stays tells whether a node is there, and is not about to end.
func (k *Keeper) stays(node string) bool {
	p := k.o.Neighbours.Peers()[node]
	return p.Alive && !p.Ends
}

// mayHand slows the transfers down that spread leaders, and spares nodes that end.
func (k *Keeper) mayHand(m *Map, shard int, to string) bool {
	if !k.stays(to) {
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if r, _ := m.Shards[shard].Wants(k.o.Self); r.Voter && k.handed > 0 && k.o.Now()-k.handed < handRest {
		return false
	}
	k.handed = k.o.Now()
	return true
}

// awaits asks a node whether it has opened the replica that is to be added: until
// then the group would call in vain.
func (k *Keeper) awaits(ctx context.Context, shard int, a Action) bool {
	m := k.Map()
	r := Own{Shard: shard, Incarnation: m.Shards[shard].Incarnation, Life: a.Life}
	st, _ := k.o.Groups.Status(shard)
	answer, err := k.ask(ctx, a.Node, question{Revision: m.Revision, Open: &r, Term: st.Term})
	return err == nil && answer.Open
}

// proposeFounding writes the first entry of a new cluster, until it is there.
func (k *Keeper) proposeFounding(ctx context.Context) error {
	applied, _ := k.o.Machine.Map()
	m := k.Map()
	if applied.Cluster != "" || m == nil {
		return nil
	}
	_, err := k.o.Groups.Propose(ctx, Command{Op: OpFound, Map: m}.Encode())
	if err != nil {
		return fmt.Errorf("found the cluster: %w", err)
	}
	return nil
}

// pace is since when the members of a group have kept up, in one term.
type pace struct {
	term  uint64
	since map[Replica]time.Duration // Voter is left out
}

// watch is the group as a report has it.
func (k *Keeper) watch(shard int, st Status) Group {
	k.mu.Lock()
	defer k.mu.Unlock()
	now, p := k.o.Now(), k.paces[shard]
	if p.term != st.Term {
		p = pace{st.Term, make(map[Replica]time.Duration)}
		k.paces[shard] = p
	}
	g := Group{Incarnation: st.Incarnation, Leader: k.o.Self, Term: st.Term, Last: st.Last}
	for _, s := range st.Members {
		of := Replica{Node: s.Node, Life: s.Life}
		m := Member{Node: s.Node, Life: s.Life, Voter: s.Voter, Live: s.Node == k.o.Self || s.Match > 0 && s.Heard < liveFor}
		if !m.Live || s.Match == 0 || s.Lag > fewLacked {
			delete(p.since, of)
		} else if since, kept := p.since[of]; kept {
			m.Level = now - since
		} else {
			p.since[of] = now
		}
		g.Members = append(g.Members, m)
	}
	return g
}

func (k *Keeper) forget(shard int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.paces, shard)
}
