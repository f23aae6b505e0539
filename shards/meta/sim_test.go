package meta

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// world is a cluster in virtual time: real keepers on a Raft that is a page long,
// a network that can be cut, and disks that can be lost. One thread, one seed.
type world struct {
	t       testing.TB
	r       *rand.Rand
	now     time.Duration
	nodes   map[string]*box
	born    int
	leaders map[string]string // by shard, incarnation and term
	acked   map[[2]int][]int  // by group: commands that were acknowledged
	clients int               // commands so far
	steps   int               // changes of groups
	story   []string
	split   map[string]bool // the nodes of one side of a network that is cut in two; nil: it is not
	had     map[string]*Map // by node: the map that it was seen with last
	each    func()          // what a test looks at in each tick; nil: nothing
	births  map[string]int  // numbers groups by incarnation and who made them, where two may have made the same one; nil: nobody has
}

// box is a node: a keeper, a disk and a network card.
type box struct {
	w       *world
	id      string
	boot    uint64
	up      bool
	died    time.Duration
	cut     bool // of the network
	wiped   bool
	left    bool
	zone    string
	host    bool
	disk    map[string][]byte
	logs    map[Own]*log
	keeper  *Keeper
	machine *Machine
	fed     int // entries of shard 0 that the machine has
	heard   map[string]time.Duration
	names   map[string]Named
	hole    Own     // whose log is broken
	full    bool    // its disk: no replica can be made
	blind   bool    // it cannot say what is on its disk
	mute    bool    // gossip sees it, and it answers no question
	failed  bool    // it says that its disk has failed
	ends    bool    // it says that it is about to end
	unsure  bool    // the next command is done, and who proposed it does not hear of that
	older   *copied // of its directory, before its last run
}

// log is a replica: what it keeps on disk, and while it is open.
type log struct {
	box     *box
	own     Own
	term    uint64
	voted   string
	entries []entry
	commit  int
	open    bool
	leads   bool
	leader  string
	match   map[string]int
	answer  map[string]time.Duration
}

type entry struct {
	term   uint64
	config []Replica // or
	data   []byte    // or a client's number
	client int
}

var (
	errLost = errors.New("no majority answers")
	errDisk = errors.New("the disk is full")
)

func newWorld(t testing.TB, seed uint64) *world {
	return &world{
		t: t, r: rand.New(rand.NewPCG(seed, 7)), nodes: map[string]*box{}, leaders: map[string]string{}, acked: map[[2]int][]int{},
		now: time.Hour, had: map[string]*Map{},
	}
}

func (w *world) say(format string, args ...any) {
	w.story = append(w.story, fmt.Sprintf("%8.1fs %s", w.now.Seconds(), fmt.Sprintf(format, args...)))
}

func (w *world) fail(format string, args ...any) {
	w.t.Helper()
	for _, line := range w.story[max(0, len(w.story)-60):] {
		w.t.Log(line)
	}
	w.t.Fatalf(format, args...)
}

// add starts a new node; the first founds, the others ask to be let in.
func (w *world) add(zone string, host bool) *box {
	w.born++
	b := &box{w: w, id: fmt.Sprintf("n%02d", w.born), zone: zone, host: host, disk: map[string][]byte{}, logs: map[Own]*log{}}
	w.nodes[b.id] = b
	b.start()
	return b
}

func (b *box) start() {
	b.boot++
	b.up, b.cut, b.fed, b.machine, b.heard = true, false, 0, NewMachine(), map[string]time.Duration{}
	var err error
	b.keeper, err = NewKeeper(Options{
		Self: b.id, Run: b.boot, Machine: b.machine, Host: b, Groups: b, Neighbours: b, Log: slog.New(slog.DiscardHandler),
		Now: func() time.Duration { return b.w.now }, files: b, Names: func() map[string]Named { return b.names },
	})
	if err != nil {
		b.w.fail("start of %s: %v", b.id, err)
	}
	for id, o := range b.w.nodes {
		if o != b && b.reaches(o) && o.keeper.Map() != nil {
			b.heard[id] = b.w.now
		}
	}
	b.keeper.LookBack(context.Background())
	if err := b.keeper.resurrect(); err != nil {
		b.w.fail("start of %s: %v", b.id, err)
	}
	b.keeper.place(context.Background())
}

func (b *box) stop() {
	b.up, b.died = false, b.w.now
	for _, l := range b.logs {
		l.open, l.leads = false, false
	}
}

func (b *box) read(name string) ([]byte, error)     { return b.disk[name], nil }
func (b *box) write(name string, data []byte) error { b.disk[name] = data; return nil }

func (b *box) Open(e Errand) error {
	r := e.Own
	if b.failed {
		return errDisk
	}
	if key(r) == b.hole && b.hole.Life > 0 || e.Kept && !e.Found && b.logs[key(r)] == nil {
		return ErrHole
	}
	if r.Shard == 0 {
		b.machine.Reset()
		b.fed = 0
	}
	l := b.logs[key(r)]
	if l == nil && b.full {
		return errDisk
	}
	if l == nil {
		l = &log{box: b, own: r}
		b.logs[key(r)] = l
		if e.Found {
			l.entries = []entry{{config: []Replica{{b.id, r.Life, true}}}}
		}
		for _, s := range e.Seeds {
			if old := b.logs[key(s)]; old != nil && len(old.entries) > 0 {
				for _, was := range old.entries {
					if was.config == nil {
						l.entries = append(l.entries, entry{client: was.client, data: was.data})
					}
				}
				break
			}
		}
	}
	l.open = true
	return nil
}

func key(r Own) Own { return Own{Shard: r.Shard, Incarnation: r.Incarnation, Life: r.Life} }

func (b *box) Close(_ context.Context, r Own) {
	b.logs[key(r)].open, b.logs[key(r)].leads = false, false
}

func (b *box) Delete(_ context.Context, r Own) error { delete(b.logs, key(r)); return nil }

func (b *box) Kept(shard int) (all []Kept, err error) {
	if b.blind {
		return nil, errDisk
	}
	for own, l := range b.logs {
		if own.Shard == shard {
			all = append(all, Kept{own.Incarnation, own.Life, lastTerm(l.entries), uint64(len(l.entries))})
		}
	}
	return all, nil
}

func (b *box) log(shard int) *log {
	for _, l := range b.logs {
		if l.own.Shard == shard && l.open {
			return l
		}
	}
	return nil
}

func (b *box) Status(shard int) (Status, bool) {
	l := b.log(shard)
	if l == nil {
		return Status{}, false
	}
	config, index := l.config()
	if p := l.at(l.leader); p == nil || !p.leads {
		l.leader = ""
	}
	st := Status{Incarnation: l.own.Incarnation, Leader: l.leader, Term: l.term, Last: uint64(len(l.entries)), Config: uint64(index)}
	st.Open = l.leads && l.commit > 0 && l.entries[l.commit-1].term == l.term
	for _, r := range config {
		m := MemberStatus{Node: r.Node, Life: r.Life, Voter: r.Voter}
		if at, ok := l.answer[nameOf(r)]; ok && l.leads {
			m.Match, m.Heard = uint64(l.match[nameOf(r)]), b.w.now-at
			m.Lag = uint64(max(0, l.commit-l.match[nameOf(r)]))
		}
		if l.is(r) {
			m.Match = uint64(len(l.entries))
		}
		st.Members = append(st.Members, m)
	}
	return st, true
}

func (b *box) Change(_ context.Context, shard int, a Action) error {
	l := b.log(shard)
	config, index := l.config()
	switch {
	case !l.leads || index > l.commit || uint64(index) != a.Config:
		return fmt.Errorf("%w: not now", errLost)
	case a.Do == Transfer:
		return l.transfer(Replica{Node: a.Node, Life: a.Life})
	}
	next := slices.DeleteFunc(slices.Clone(config), func(r Replica) bool { return r.Node == a.Node && r.Life == a.Life })
	switch a.Do {
	case AddNonvoter, Demote:
		next = add(next, Replica{a.Node, a.Life, false})
	case AddVoter:
		next = add(next, Replica{a.Node, a.Life, true})
	}
	b.w.check(shard, config, next, a)
	b.w.steps++
	b.w.say("shard %d: %s %s: %s: %v", shard, a.Do, a.Node, a.Why, next)
	return l.append(entry{config: next})
}

func (b *box) Propose(_ context.Context, command []byte) (any, error) {
	l := b.log(0)
	if l == nil || !l.leads {
		return nil, errLost
	}
	if err := l.append(entry{data: command}); err != nil {
		return nil, err
	}
	done := b.feed()
	if b.unsure {
		b.unsure = false
		return nil, errLost
	}
	return done, nil
}

// feed gives the machine what is committed, and returns the last result.
func (b *box) feed() (last any) {
	l := b.log(0)
	if l == nil {
		return nil
	}
	for ; b.fed < l.commit; b.fed++ {
		if e := l.entries[b.fed]; e.data != nil {
			results, err := b.machine.Apply(e.term, uint64(b.fed), [][]byte{e.data})
			if err != nil {
				b.w.fail("%s halts: %v", b.id, err)
			}
			last = results[0]
		}
	}
	return last
}

func (b *box) Peers() map[string]Peer {
	peers := map[string]Peer{}
	for id, o := range b.w.nodes {
		at, met := b.heard[id]
		if !met {
			continue
		}
		peers[id] = Peer{
			Node: Node{Name: id, Zone: o.zone, Hosts: o.host, Level: 1, Boot: o.boot}, At: id + ":7947",
			Alive: b.w.now-at < 3*time.Second, Failed: o.failed, Ends: o.ends,
		}
		if m := o.keeper.Map(); m != nil {
			p := peers[id]
			p.Generation = m.Generation()
			peers[id] = p
		}
	}
	return peers
}

func (b *box) Ask(ctx context.Context, node string, question []byte) ([]byte, error) {
	to := b.w.nodes[node]
	if to == nil || !b.reaches(to) || to.keeper.Map() == nil || to.mute {
		return nil, errLost
	}
	return to.keeper.Answer(ctx, b.id, question)
}

func (b *box) reaches(o *box) bool {
	apart := b.cut || o.cut || b.w.split[b.id] != b.w.split[o.id]
	return b.up && o.up && (b == o || !apart)
}

// config is the last configuration of a log, committed or not.
func (l *log) config() ([]Replica, int) {
	for i := len(l.entries); i > 0; i-- {
		if c := l.entries[i-1].config; c != nil {
			return c, i
		}
	}
	return nil, 0
}

func nameOf(r Replica) string { return fmt.Sprint(r.Node, "#", r.Life) }

func (l *log) is(r Replica) bool { return l.box.id == r.Node && l.own.Life == r.Life }

// peer is a member that this one reaches.
func (l *log) peer(r Replica) *log {
	if p := l.at(r.Node); p != nil && p.is(r) {
		return p
	}
	return nil
}

// at is what there is of the group on a node.
func (l *log) at(node string) *log {
	o := l.box.w.nodes[node]
	if o == nil || !l.box.reaches(o) {
		return nil
	}
	if p := o.log(l.own.Shard); p != nil && p.own.Incarnation == l.own.Incarnation {
		return p
	}
	return nil
}

func (l *log) append(e entry) error {
	e.term = l.term
	l.entries = append(slices.Clip(l.entries), e)
	at := len(l.entries)
	l.replicate()
	if !l.leads || l.commit < at {
		return errLost
	}
	return nil
}

// replicate is one round of AppendEntries: 50 entries at most, to whom it reaches.
func (l *log) replicate() {
	config, _ := l.config()
	for _, r := range config {
		p := l.peer(r)
		if p == nil || p == l || l.box.w.r.IntN(20) == 0 {
			continue
		}
		if p.term > l.term {
			l.leads, l.term, l.voted = false, p.term, ""
			return
		}
		if p.term < l.term {
			p.voted = ""
		}
		p.term, p.leads, p.leader = l.term, false, l.box.id
		same := min(len(p.entries), len(l.entries))
		for same > 0 && p.entries[same-1].term != l.entries[same-1].term {
			same--
		}
		if same < p.commit {
			l.box.w.fail("shard %d: %s is to forget what was committed: %+v by %+v of %s", l.own.Shard, r.Node, p.own, l.own, l.box.id)
		}
		if same < len(l.entries) || len(p.entries) > len(l.entries) {
			p.entries = slices.Clip(l.entries[:min(len(l.entries), same+50)])
		}
		l.match[nameOf(r)], l.answer[nameOf(r)] = min(len(p.entries), len(l.entries)), l.box.w.now
		p.commit = max(p.commit, min(l.commit, len(p.entries)))
	}
	if l.advance(config); !l.holds(config) {
		l.leads = false // its lease is over
	}
}

// holds tells whether a majority has answered lately.
func (l *log) holds(config []Replica) bool {
	voters, answer := 0, 0
	for _, r := range config {
		if !r.Voter {
			continue
		}
		voters++
		if at, ok := l.answer[nameOf(r)]; l.is(r) || ok && l.box.w.now-at < time.Second {
			answer++
		}
	}
	return 2*answer > voters
}

func (l *log) advance(config []Replica) {
	for at := len(l.entries); at > l.commit && l.entries[at-1].term == l.term; at-- {
		voters, have := 0, 0
		for _, r := range config {
			if r.Voter {
				voters++
				if l.is(r) || l.match[nameOf(r)] >= at {
					have++
				}
			}
		}
		if 2*have > voters {
			l.commit = at
			return
		}
	}
}

// stand is an election. With force it is one in the way of a transfer.
func (l *log) stand(force bool) bool {
	config, _ := l.config()
	votes, voters := 0, 0
	var granted []*log
	if p := l.at(l.leader); !force && p != nil && p.leads {
		return false
	}
	for _, r := range config {
		if !r.Voter {
			continue
		}
		voters++
		p := l.peer(r)
		if p == nil {
			continue
		}
		if old := p.at(p.leader); !force && p != l && old != nil && old.leads {
			continue // it has heard its leader lately
		}
		if p.term > l.term {
			l.term, l.voted = p.term, ""
		}
		last, own := lastTerm(p.entries), lastTerm(l.entries)
		if own > last || own == last && len(l.entries) >= len(p.entries) {
			votes++
			granted = append(granted, p)
		}
	}
	if !slices.Contains(config, Replica{l.box.id, l.own.Life, true}) || 2*votes <= voters {
		return false
	}
	for _, p := range granted {
		if p.term > l.term || p.term == l.term && p != l && p.leads {
			l.term = p.term
		}
	}
	l.term++
	for _, p := range granted {
		p.term, p.voted, p.leads, p.leader = l.term, l.box.id, false, l.box.id
	}
	l.lead()
	return true
}

// group is what a replica is of: shard and incarnation, but where two may have begun the same.
func (l *log) group() [2]int {
	if l.box.w.births == nil {
		return [2]int{l.own.Shard, int(l.own.Incarnation)}
	}
	return l.box.w.birth(l.own.Shard, l.own.Incarnation, l.entries[0].config[0])
}

func (w *world) birth(shard int, incarnation uint32, of Replica) [2]int {
	name := fmt.Sprint(shard, "/", incarnation, "/", nameOf(of))
	if w.births[name] == 0 {
		w.births[name] = 1000 + len(w.births)
	}
	return [2]int{shard, w.births[name]}
}

func lastTerm(e []entry) uint64 {
	if len(e) == 0 {
		return 0
	}
	return e[len(e)-1].term
}

func (l *log) lead() {
	w := l.box.w
	name := fmt.Sprint(l.group(), "/", l.term)
	if other := w.leaders[name]; other != "" {
		w.fail("shard %d has two leaders in term %d: %s and %s", l.own.Shard, l.term, other, l.box.id)
	}
	w.leaders[name] = l.box.id
	l.leads, l.match, l.answer = true, map[string]int{}, map[string]time.Duration{}
	have := map[int]bool{}
	for _, e := range l.entries {
		have[e.client] = true
	}
	for _, c := range w.acked[l.group()] {
		if !have[c] {
			w.fail("shard %d: %s leads and has lost acknowledged command %d", l.own.Shard, l.box.id, c)
		}
	}
	_ = l.append(entry{client: -1})
}

func (l *log) transfer(to Replica) error {
	p := l.peer(to)
	if p == nil || len(p.entries) < len(l.entries) {
		return errLost
	}
	if !p.stand(true) {
		return errLost
	}
	return nil
}

// check is the promise about steps: with the nodes that have not just died, a
// majority of the voters lives after each.
func (w *world) check(shard int, was, next []Replica, a Action) {
	living := func(c []Replica) (voters, live int) {
		for _, r := range c {
			o := w.nodes[r.Node]
			if r.Voter {
				voters++
				if o != nil && !o.wiped && (o.up && !o.cut || w.now-o.died < liveFor+time.Second) {
					live++
				}
			}
		}
		return voters, live
	}
	before, liveBefore := living(was)
	after, live := living(next)
	if 2*liveBefore > before && 2*live <= after {
		w.fail("shard %d: %s %s leaves %d of %d voters alive", shard, a.Do, a.Node, live, after)
	}
	if after > before && after%2 == 0 && after > 4 {
		w.fail("shard %d: %d voters", shard, after)
	}
}

func (w *world) ids() []string { return slices.Sorted(maps.Keys(w.nodes)) }

// owns returns the node's replicas in order.
func (b *box) owns() []Own {
	return slices.SortedFunc(maps.Keys(b.logs), func(x, y Own) int {
		return cmp.Or(x.Shard-y.Shard, int(x.Incarnation)-int(y.Incarnation), int(x.Life)-int(y.Life))
	})
}

// tick is a quarter of a second of everything.
func (w *world) tick() {
	w.now += 250 * time.Millisecond
	ids := w.ids()
	w.r.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	for _, id := range ids {
		for _, other := range ids {
			a, b := w.nodes[id], w.nodes[other]
			if a.reaches(b) && a.keeper.Map() != nil {
				a.heard[other] = w.now
			}
		}
	}
	for _, id := range ids {
		if b := w.nodes[id]; b.up {
			b.live()
		}
	}
	w.verify()
}

func (b *box) live() {
	w, ctx := b.w, context.Background()
	for _, own := range b.owns() {
		switch l := b.logs[own]; {
		case l.open && l.leads:
			l.replicate()
		case l.open && w.r.IntN(4) == 0:
			l.stand(false)
		}
	}
	b.feed()
	k := b.keeper
	if k.Map() == nil {
		for _, id := range w.ids() {
			if m, err := Ask(ctx, b, id, Node{}); err == nil {
				_ = k.Take(m)
				break
			}
		}
	}
	if k.Map() == nil || w.r.IntN(2) == 0 {
		return
	}
	k.adopt()
	k.place(ctx)
	for _, r := range k.Own() {
		for again := true; again && w.r.IntN(8) > 0; {
			again, _ = k.step(ctx, r.Shard)
		}
	}
	_ = k.report(ctx)
	_ = k.control(ctx)
	if n := k.Map().Nodes[b.id]; n.State == Removed && n.Leaving && n.Boot == b.boot {
		w.say("%s has left", b.id)
		b.left = true
		b.stop()
	}
}

// verify looks at what must be so at every moment.
func (w *world) verify() {
	m := w.newest()
	if m == nil {
		return
	}
	w.onward()
	if w.each != nil {
		w.each()
	}
	for i, s := range m.Shards {
		if i > 0 && s.Phase == Ready && s.Incarnation > 1 && len(w.acked[[2]int{i, int(s.Incarnation) - 1}]) > 100 {
			w.fail("shard %d was made anew", i)
		}
	}
	for _, node := range w.ids() {
		b := w.nodes[node]
		for _, own := range b.owns() {
			l := b.logs[own]
			if l.open && b.up && l.leads && own.Shard > 0 && w.r.IntN(3) == 0 {
				w.clients++
				if l.append(entry{client: w.clients}) == nil {
					w.acked[l.group()] = append(w.acked[l.group()], w.clients)
				}
			}
		}
	}
}

// onward fails if a node has gone back behind a map that it had.
func (w *world) onward() {
	for id, b := range w.nodes {
		if m, had := b.keeper.Map(), w.had[id]; had != nil && (m == nil || had.after(m)) {
			w.fail("%s had generation %d of the map, revision %d, and has %+v", id, had.Generation(), had.Revision, m)
		} else if m != nil {
			w.had[id] = m
		}
	}
}

// newest is the newest map that any living node has.
func (w *world) newest() (m *Map) {
	for _, b := range w.nodes {
		if c := b.keeper.Map(); b.up && c != nil && (m == nil || c.Revision > m.Revision) {
			m = c
		}
	}
	return m
}

func (w *world) run(d time.Duration) {
	for end := w.now + d; w.now < end; {
		w.tick()
	}
}

// until runs until a condition holds, and says how long it took.
func (w *world) until(what string, within time.Duration, holds func() error) time.Duration {
	w.t.Helper()
	begin := w.now
	for {
		err := holds()
		if err == nil {
			return w.now - begin
		}
		if w.now-begin > within {
			w.fail("%s: not within %v: %v", what, within, err)
		}
		w.tick()
	}
}

// leads returns the group of a shard's leader with the highest term.
func (w *world) leads(shard int) (found *log) {
	for _, b := range w.nodes {
		if l := b.log(shard); b.up && l != nil && l.leads && (found == nil || l.own.Incarnation > found.own.Incarnation || l.own.Incarnation == found.own.Incarnation && l.term > found.term) {
			found = l
		}
	}
	return found
}

// reached says what keeps the groups from being as the map wants.
func (w *world) reached() error {
	m := w.newest()
	if m == nil || m.Revision < 2 {
		return errors.New("there is no map")
	}
	for i := range m.Shards {
		if err := w.settled(i); err != nil {
			return err
		}
	}
	return nil
}

// settled says what keeps one group from it.
func (w *world) settled(i int) error {
	s, l := w.newest().Shards[i], w.leads(i)
	if l == nil || s.Phase != Ready || s.Step != nil || l.own.Incarnation != s.Incarnation {
		return fmt.Errorf("shard %d: %+v, step %+v, leader %v", i, s, s.Step, l != nil)
	}
	if config, index := l.config(); !slices.Equal(config, s.Replicas) || l.commit < index {
		return fmt.Errorf("shard %d has %v, the map wants %v", i, config, s.Replicas)
	}
	return nil
}

// well says what keeps the cluster from being as good as its nodes allow.
func (w *world) well() error {
	if err := w.reached(); err != nil {
		return err
	}
	m := w.newest()
	hosts, zones := 0, map[string]bool{}
	for id, b := range w.nodes {
		n := m.Nodes[id]
		if b.up && (n.State != Active || !n.Hosts != !b.host) {
			return fmt.Errorf("%s is %+v", id, n)
		}
		if b.up && b.host {
			hosts++
			zones[b.zone] = true
		}
	}
	want := min(3, hosts)
	replicas, leaders := map[string]int{}, map[string]int{}
	for i, s := range m.Shards {
		if len(s.Replicas) != want || s.Voters() != (want-1)|1 {
			return fmt.Errorf("shard %d has %v on %d nodes", i, s.Replicas, hosts)
		}
		crowds := 0
		for _, r := range s.Replicas {
			if b := w.nodes[r.Node]; !b.up || !b.host {
				return fmt.Errorf("shard %d is on %s", i, r.Node)
			}
			crowds += m.crowd(r.Node, s.Replicas)
			if i > 0 {
				replicas[r.Node]++
			}
		}
		if i > 0 && len(zones) >= want && crowds > 0 && !zones[""] {
			return fmt.Errorf("shard %d: %v share a zone", i, s.Replicas)
		}
		leaders[w.leads(i).box.id]++
	}
	for id, b := range w.nodes {
		if !b.up || !b.host {
			continue
		}
		if even := float64(m.Count()*want) / float64(hosts); len(zones) == 1 && (float64(replicas[id]) < even-1 || float64(replicas[id]) > even+1) {
			return fmt.Errorf("%s has %d replicas, even would be %.1f: %v", id, replicas[id], even, replicas)
		}
		if even := float64(len(m.Shards)) / float64(hosts); hosts != 2 && len(zones) == 1 && (float64(leaders[id]) < even-2 || float64(leaders[id]) > even+2) {
			return fmt.Errorf("%s leads %d shards, even would be %.1f", id, leaders[id], even)
		}
	}
	return nil
}
