package membership

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/starling-lb/starling/node"
	"github.com/starling-lb/starling/node/api"
	"github.com/starling-lb/starling/testcluster"
)

var (
	seed  = flag.Uint64("membership.seed", 1, "of what happens to the nodes")
	seeds = flag.Int("membership.seeds", 1, "how many seeds, from that one on")
	deeds = flag.Int("membership.deeds", 30, "how much happens in a life of the long form")
)

// Bounds of a life.
const (
	mostNodes = 6
)

// TestRandomLives: nodes join, leave, are drained, die and come back, the one that
// decides among them, and, in the long form, lose their disks, also most of them at once,
// whereupon operators recover shard 0 and reset others, by seed; sessions are
// bound all the time. No shard has two leaders in one term, no step leaves its living
// voters without a majority, no binding that was acknowledged is lost, and once nothing
// happens any more every group is as the map wants it.
func TestRandomLives(t *testing.T) {
	t.Parallel()
	for i := range *seeds {
		t.Run(fmt.Sprint("seed ", *seed+uint64(i)), func(t *testing.T) { live(t, *seed+uint64(i)) })
	}
}

func live(t *testing.T, seed uint64) {
	w := newTown(t, seed)
	for _, do := range w.deeds() {
		do()
		w.pause(1500 * time.Millisecond)
	}
	w.quiet()
	if *full {
		w.lose() // once at least
		w.quiet()
		if w.losses == 0 {
			t.Error("most nodes were never lost")
		}
	}
	w.check()
}

// town is a cluster to which things happen.
type town struct {
	t      *testing.T
	r      *rand.Rand
	c      *testcluster.Cluster
	client *http.Client
	dirs   map[int]string
	leaves sync.WaitGroup // leaves that are on their way

	mu      sync.Mutex // guards what follows
	nodes   map[int]*testcluster.Node
	up      map[int]bool         // nodes that run, and stay
	gone    map[int]bool         // nodes that do not run
	ids     map[int]string       // of those that ever ran
	drained int                  // 0: none; else the number of the node, from 1
	leaders map[string]string    // by shard and term: the node
	homes   map[string]string    // of the sessions that were acknowledged
	since   map[string]time.Time // when each was first
	era     int                  // in another one groups that were made anew begin their terms anew
	losses  int                  // of most nodes at once
	loose   bool                 // most are lost, by design: who leads and votes is not judged
	doubts  map[string]struct{}  // what was wrong at the last look and may have been in between
	wrong   []string
	story   []string
	began   time.Time
}

func newTown(t *testing.T, seed uint64) *town {
	w := &town{
		t: t, r: rand.New(rand.NewPCG(seed, seed)), dirs: map[int]string{}, nodes: map[int]*testcluster.Node{}, up: map[int]bool{}, gone: map[int]bool{}, ids: map[int]string{}, leaders: map[string]string{},
		homes: map[string]string{}, since: map[string]time.Time{}, doubts: map[string]struct{}{}, began: time.Now(),
		client: &http.Client{Timeout: patience, Transport: &http.Transport{MaxIdleConnsPerHost: 16}},
	}
	t.Logf("seed %d: go test ./testcluster/membership -run RandomLives -args -membership.seed=%d", seed, seed)
	w.c = begin(t, 3, 4, func(cfg *node.Config) {
		pool := cfg.Pools[testcluster.PoolName]
		pool.Sticky.Consistency = "strict" // an answer is an agreed binding, or none
		n, _ := strconv.Atoi(strings.TrimPrefix(cfg.Node.Name, "n"))
		w.dirs[n-1] = cfg.Node.DataDir
	})
	for i := range 3 {
		w.met(i)
	}
	eventually(t, settleTime, func() string { return settled(t, w.c.Node(0), 3) })
	ctx, cancel := context.WithCancel(t.Context())
	var loops sync.WaitGroup
	loops.Go(func() { w.bindLoop(ctx) })
	loops.Go(func() { w.watchLoop(ctx) })
	t.Cleanup(func() {
		cancel()
		loops.Wait()
		w.client.CloseIdleConnections()
		if t.Failed() {
			t.Log("what happened:\n" + strings.Join(w.story, "\n"))
		}
	})
	return w
}

func (w *town) say(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.story = append(w.story, fmt.Sprintf("%6.1fs ", time.Since(w.began).Seconds())+fmt.Sprintf(format, args...))
}

func (w *town) fault(format string, args ...any) {
	w.say("WRONG: "+format, args...)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wrong = append(w.wrong, fmt.Sprintf(format, args...))
}

// pause waits up to so long, by the seed.
func (w *town) pause(most time.Duration) {
	select {
	case <-time.After(time.Duration(w.r.Int64N(int64(most)))):
	case <-w.t.Context().Done():
	}
}

// met notes a node that has come up.
func (w *town) met(i int) {
	w.t.Helper()
	var s api.Status
	n := w.c.Node(i)
	if err := admin(w.t, n).Get(w.t.Context(), &s, "status"); err != nil {
		w.t.Fatal(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.nodes[i], w.up[i], w.gone[i], w.ids[i] = n, true, false, s.Node.ID
}

// node is a node by its number; the loops ask while others come.
func (w *town) node(i int) *testcluster.Node {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.nodes[i]
}

// running is the numbers of the nodes that run, in order.
func (w *town) running() (all []int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, up := range w.up {
		if up {
			all = append(all, i)
		}
	}
	slices.Sort(all)
	return all
}

// deeds are what is to happen: of all kinds one at least, in any order, and in the long
// form whatever comes then.
func (w *town) deeds() []func() {
	all := []func(){w.leave, w.drain, w.killDecider, w.kill, w.killDecider}
	w.r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	all = append([]func(){w.join}, all...) // or none could leave
	if !*full {
		return all
	}
	for len(all) < *deeds {
		more := []func(){w.join, w.leave, w.drain, w.drain, w.kill, w.kill, w.killDecider, w.wipe, w.lose}
		all = append(all, more[w.r.IntN(len(more))])
	}
	return all
}

// anyone is a node that runs.
func (w *town) anyone() int {
	all := w.running()
	return all[w.r.IntN(len(all))]
}

func (w *town) join() {
	if len(w.dirs) >= mostNodes {
		return
	}
	if err := w.c.Add(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	i := len(w.dirs) - 1
	w.met(i)
	w.say("n%d joins", i+1)
}

// leave has a node leave for good; it takes its time.
func (w *town) leave() {
	if len(w.running()) < 4 {
		return // three are needed
	}
	i := w.anyone()
	n := w.node(i)
	if err := admin(w.t, n).Post(w.t.Context(), nil, "node", "leave"); err != nil {
		w.say("n%d cannot leave: %v", i+1, err)
		return
	}
	w.mu.Lock()
	w.up[i] = false
	if w.drained == i+1 {
		w.drained = 0 // to take that back would take back that it leaves
	}
	w.mu.Unlock()
	w.say("n%d leaves", i+1)
	w.leaves.Go(func() {
		select {
		case <-n.Left():
			w.say("n%d has left", i+1)
		case <-time.After(3 * settleTime):
			w.fault("n%d has not left", i+1)
		case <-w.t.Context().Done():
		}
		if err := n.Stop(context.Background()); err != nil {
			w.fault("n%d: %v", i+1, err)
		}
		w.mu.Lock()
		w.gone[i] = true
		w.mu.Unlock()
	})
}

// drain sets a node aside, or takes that back.
func (w *town) drain() {
	i := w.anyone()
	w.mu.Lock()
	was := w.drained
	w.drained = 0
	w.mu.Unlock()
	if was > 0 {
		w.verb(was-1, "undrain")
		return
	}
	w.mu.Lock()
	w.drained = i + 1
	w.mu.Unlock()
	w.verb(i, "drain")
}

func (w *town) verb(i int, verb string) {
	w.say("n%d: %s", i+1, verb)
	if err := admin(w.t, w.node(i)).Post(w.t.Context(), nil, "node", verb); err != nil {
		w.say("n%d: %s: %v", i+1, verb, err)
	}
}

func (w *town) kill()        { w.die(w.anyone(), false) }
func (w *town) killDecider() { w.die(w.decider(w.anyone()), false) }
func (w *town) wipe()        { w.die(w.anyone(), true) }

// decider is the node that leads shard 0, where that is known and it runs.
func (w *town) decider(or int) int {
	var l api.ShardList
	if err := admin(w.t, w.node(or)).Get(w.t.Context(), &l, "shards"); err != nil || len(l.Shards) == 0 {
		return or
	}
	for _, i := range w.running() {
		if w.ids[i] == l.Shards[0].LeaderID {
			return i
		}
	}
	return or
}

// die has a node die and come back, on its disk or on an empty one, as soon as that
// costs no shard its majority: one that has one voter, or misses some, must not lose
// another.
func (w *town) die(i int, wipe bool) {
	eventually(w.t, settleTime+2*time.Minute, func() string { // a node that lost its disk is missed until it is dead, who it was
		if !w.spares(i) {
			return fmt.Sprintf("n%d would be missed", i+1)
		}
		return ""
	})
	w.mu.Lock()
	w.up[i], w.gone[i] = false, true
	w.mu.Unlock()
	w.say("n%d dies", i+1)
	w.c.Kill(i)
	w.pause(3 * time.Second)
	if wipe {
		w.say("n%d has lost its disk", i+1)
		if err := os.RemoveAll(w.dirs[i]); err != nil {
			w.t.Fatal(err)
		}
		w.mu.Lock()
		if w.drained == i+1 {
			w.drained = 0
		}
		w.mu.Unlock()
	}
	if err := w.c.Restart(w.t.Context(), i); err != nil {
		w.t.Fatal(err)
	}
	w.met(i)
	w.say("n%d is back", i+1)
}

// spares tells whether every shard can do without a node.
func (w *town) spares(i int) bool {
	ask := i
	for _, o := range w.running() {
		if o != i {
			ask = o
		}
	}
	var l api.ShardList
	if err := admin(w.t, w.node(ask)).Get(w.t.Context(), &l, "shards"); err != nil {
		return false
	}
	for _, s := range l.Shards {
		voters, left := 0, 0
		for _, r := range s.Replicas {
			if r.Role != api.LeaderRole && r.Role != api.VoterRole {
				continue
			}
			voters++
			if r.ID != w.ids[i] && (r.Role == api.LeaderRole || r.Match > 0 && r.Lag == 0 && r.State != "dead") {
				left++
			}
		}
		if voters < 3 || 2*left <= voters || s.Leader == "" {
			return false
		}
	}
	return true
}

// bindLoop binds new sessions and asks for old ones, at one node after the other.
func (w *town) bindLoop(ctx context.Context) {
	tick := time.NewTicker(40 * time.Millisecond)
	defer tick.Stop()
	var all sync.WaitGroup
	defer all.Wait()
	for i := 0; ; i++ {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if nodes := w.running(); len(nodes) > 0 {
			at := w.node(nodes[i%len(nodes)])
			session := fmt.Sprint("s", i)
			if i%2 == 1 {
				session = fmt.Sprint("s", i/4*2) // from halfway back
			}
			all.Go(func() { w.turn(at, session) })
		}
	}
}

func (w *town) turn(at *testcluster.Node, session string) {
	if home, err := turn(w.client, at, session); err == nil { // else it says nothing of where the session lives
		w.took(session, home)
	}
}

// took notes that a session has had a turn at a backend: it may be at no other one,
// ever.
func (w *town) took(session, home string) {
	w.mu.Lock()
	was, known := w.homes[session]
	if !known {
		w.homes[session], w.since[session] = home, time.Now()
	}
	w.mu.Unlock()
	if known && was != home {
		w.fault("session %s is at %s, and was at %s", session, home, was)
	}
}

// watchLoop looks at who leads and who votes.
func (w *town) watchLoop(ctx context.Context) {
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		nodes := w.running()
		for _, n := range nodes {
			w.leads(n, scrape(w.node(n)))
		}
		if len(nodes) > 0 {
			w.voters(nodes[i%len(nodes)])
		}
	}
}

// scrape is a node's metrics; "" where it has none to tell.
func scrape(n *testcluster.Node) string {
	c := http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := c.Get(n.AdminURL() + "/metrics")
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body) // half of it says half as much
	return string(b)
}

// leads notes which shards a node leads in which terms. A group that leads and its
// term are read at once.
func (w *town) leads(i int, page string) {
	led, terms := map[string]bool{}, map[string]string{}
	for line := range strings.Lines(page) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if shard, ok := strings.CutPrefix(name, "starling_shard_leader{"); ok {
			led[shard] = value == "1"
		}
		if shard, ok := strings.CutPrefix(name, "starling_raft_term{"); ok {
			terms[shard] = value
		}
	}
	w.mu.Lock()
	id := w.ids[i]
	var two []string
	for shard, leads := range led {
		if !leads || terms[shard] == "" {
			continue
		}
		key := shard + " in term " + terms[shard]
		at := fmt.Sprint(w.era, key)
		if was := w.leaders[at]; was != "" && was != id && !w.loose {
			two = append(two, fmt.Sprintf("%s is led by %s and by %s", key, was, id))
		}
		w.leaders[at] = id
	}
	w.mu.Unlock()
	for _, text := range two {
		w.fault("%s", text)
	}
}

// voters looks whether the living are a majority in every group. What is seen twice in
// a row is wrong: a node may have died within a look.
func (w *town) voters(ask int) {
	before := w.alive()
	var l api.ShardList
	if err := admin(w.t, w.node(ask)).Get(w.t.Context(), &l, "shards"); err != nil {
		return
	}
	after := w.alive()
	w.doubt(minorities(l, func(id string) bool { return before[id] || after[id] }))
}

// minorities are the groups whose living voters are no majority.
func minorities(l api.ShardList, live func(id string) bool) map[string]struct{} {
	all := map[string]struct{}{}
	for _, s := range l.Shards {
		voters, up := 0, 0
		for _, r := range s.Replicas {
			if r.Role != api.LeaderRole && r.Role != api.VoterRole {
				continue
			}
			voters++
			if live(r.ID) {
				up++
			}
		}
		if voters > 0 && 2*up <= voters {
			all[fmt.Sprintf("of %d voters of shard %d in term %d, %d live", voters, s.ID, s.Term, up)] = struct{}{}
		}
	}
	return all
}

// doubt takes what looks wrong, and tells what looked so the last time, too.
func (w *town) doubt(doubts map[string]struct{}) {
	w.mu.Lock()
	was := w.doubts
	w.doubts = doubts
	w.mu.Unlock()
	if w.lost() {
		return
	}
	for text := range doubts {
		if _, twice := was[text]; twice {
			w.fault("%s", text)
		}
	}
}

func (w *town) lost() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.loose
}

// alive are the ids of the nodes that run or leave.
func (w *town) alive() map[string]bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := map[string]bool{}
	for i, id := range w.ids {
		all[id] = !w.gone[i]
	}
	return all
}

// quiet takes back what is under way, and waits until every group is as the map
// wants it.
func (w *town) quiet() {
	w.mu.Lock()
	drained := w.drained
	w.drained = 0
	w.mu.Unlock()
	if drained > 0 {
		w.verb(drained-1, "undrain")
	}
	w.leaves.Wait()
	w.say("quiet")
	began := time.Now()
	within := settleTime
	if *full {
		within += 75 * time.Second // for who lost its disk to be dead, who it was before
	}
	for _, i := range w.running() {
		eventually(w.t, within, func() string { return settled(w.t, w.node(i), 3) })
	}
	w.say("all groups are as the map wants them")
	w.t.Logf("all groups are as the map wants them %v after the last deed", time.Since(began).Round(100*time.Millisecond))
}

// check asks for every session once more, and tells what was wrong on the way.
func (w *town) check() {
	w.mu.Lock()
	homes := map[string]string{}
	for s, b := range w.homes {
		homes[s] = b
	}
	w.mu.Unlock()
	all, i := w.running(), 0
	for session := range homes {
		i++
		at := w.node(all[i%len(all)])
		eventually(w.t, settleTime, func() string {
			home, err := turn(w.client, at, session)
			if err != nil {
				return err.Error()
			}
			w.took(session, home)
			return ""
		})
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.t.Logf("%d sessions, %d leaderships, %d nodes", len(homes), len(w.leaders), len(w.ids))
	if len(homes) < 20 || len(w.leaders) < 5 {
		w.t.Errorf("too little has happened: %d sessions, leaders %v", len(homes), w.leaders)
	}
	for _, text := range w.wrong {
		w.t.Error(text)
	}
}
