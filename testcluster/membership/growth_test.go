package membership

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/starling-lb/starling/node/api"
	"github.com/starling-lb/starling/proxy/backend"
	"github.com/starling-lb/starling/testcluster"
)

// full runs the long forms: `make membership`.
var full = flag.Bool("membership.full", false, "more shards and longer lives")

// rate is less where the machine is busy otherwise: what is seen is then whether the
// cluster grows, not how well.
var rate = flag.Int("membership.rate", 50, "new sessions a second while a cluster grows")

// newcomers is a stream of new sessions, 50 a second, at one node after the other.
type newcomers struct {
	client *http.Client
	nodes  atomic.Pointer[[]*testcluster.Node]
	all    sync.WaitGroup

	late   atomic.Int64 // sessions that should have come and did not, since this machine was busy otherwise
	mu     sync.Mutex   // guards what follows
	homes  map[string]string
	failed []error
	took   []time.Duration
}

func (n *newcomers) loop(ctx context.Context) {
	every := time.Second / time.Duration(*rate)
	tick := time.NewTicker(every)
	defer tick.Stop()
	for i, began := 0, time.Now(); ; i++ {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		n.late.Store(int64(time.Since(began)/every) - int64(i) - 1)
		nodes := *n.nodes.Load()
		n.all.Go(func() { n.one(nodes[i%len(nodes)], fmt.Sprint("newcomer ", i)) })
	}
}

func (n *newcomers) one(at *testcluster.Node, session string) {
	begin := time.Now()
	home, err := turn(n.client, at, session)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.took = append(n.took, time.Since(begin))
	if err != nil {
		n.failed = append(n.failed, fmt.Errorf("%s: %w", session, err))
		return
	}
	n.homes[session] = home
}

// TestGrowthUnderLoad: a cluster of one becomes three and then five nodes, and two of
// them leave, while 50 new sessions a second come, with the usual time to be bound in.
// None fails, each stays where it was, and replicas and leaders are spread.
func TestGrowthUnderLoad(t *testing.T) {
	if !raced {
		t.Parallel()
	}
	shards := 16
	switch {
	case *full:
		shards = 64
	case raced:
		shards = 4
	}
	c := begin(t, 1, shards, nil)
	eventually(t, settleTime, func() string { return settled(t, c.Node(0), 1) })
	n := &newcomers{client: &http.Client{Timeout: patience, Transport: &http.Transport{MaxIdleConnsPerHost: 16}}, homes: map[string]string{}}
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan struct{})
	use := func(nodes ...int) {
		var use []*testcluster.Node
		for _, i := range nodes {
			use = append(use, c.Node(i))
		}
		n.nodes.Store(&use)
	}
	use(0)
	go func() { defer close(over); n.loop(ctx) }()
	t.Cleanup(func() { cancel(); <-over; n.all.Wait(); n.client.CloseIdleConnections() })

	for have := 1; have < 5; {
		begin := time.Now()
		for range 2 {
			if err := c.Add(t.Context()); err != nil {
				t.Fatal(err)
			}
			have++
		}
		if have == 3 {
			use(0, 1, 2)
		} else {
			use(0, 1, 2, 3, 4)
		}
		eventually(t, 3*settleTime, func() string { return spread(t, c.Node(0), have) })
		t.Logf("%d nodes after %v", have, time.Since(begin).Round(time.Second))
	}
	begin := time.Now()
	use(1, 2, 4)
	agreed, provisional := 0, 0
	count := func(nodes ...int) {
		for _, i := range nodes {
			page := scrape(c.Node(i))
			agreed += bound(page, "new")
			provisional += bound(page, "fallback")
		}
	}
	leave(t, c, count, 0, 3)
	eventually(t, 3*settleTime, func() string { return spread(t, c.Node(1), 3) })
	t.Logf("3 nodes again after %v", time.Since(begin).Round(time.Second))

	cancel()
	<-over
	n.all.Wait()
	count(1, 2, 4)
	late := int(n.late.Load())
	t.Logf("%d were bound in time, %d were placed for the time being; for %d the machine was late", agreed, provisional, late)
	if agreed == 0 || provisional > agreed/20+2*max(0, late) { // a machine that cannot tick in time cannot bind in time; a quiet one places none so
		t.Errorf("%d of %d sessions had to be placed for the time being", provisional, agreed+provisional)
	}
	n.judge(t, c.Node(1), provisional)
}

// leave has nodes leave for good, and returns when they have; last sees each before
// it ends.
func leave(t *testing.T, c *testcluster.Cluster, last func(...int), nodes ...int) {
	t.Helper()
	for _, i := range nodes {
		if err := admin(t, c.Node(i)).Post(t.Context(), nil, "node", "leave"); err != nil {
			t.Fatal(err)
		}
		id := get[api.Status](t, c.Node(i), "status").Node.ID
		eventually(t, settleTime, func() string { // its replicas take their time
			if m := member(t, c.Node(1), id); m.Agreed != api.LeavingNode || m.State != backend.MemberDraining {
				return fmt.Sprintf("node %d leaves, and is seen as %+v", i, m)
			}
			return ""
		})
	}
	for _, i := range nodes {
		select {
		case <-c.Node(i).Left():
		case <-time.After(3 * settleTime):
			t.Fatalf("node %d has not left: %s", i, settled(t, c.Node(i), 3))
		}
		last(i)
		if err := c.Node(i).Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// judge says how the sessions fared, and asks whether each is where it was, but for
// those whose first turn was placed for the time being: what was agreed on a moment
// later may be another place.
func (n *newcomers) judge(t *testing.T, at *testcluster.Node, provisional int) {
	t.Helper()
	slices.Sort(n.took)
	t.Logf("%d new sessions: first turn p50 %v, p99 %v, at most %v", len(n.took), n.took[len(n.took)/2], n.took[len(n.took)*99/100], n.took[len(n.took)-1])
	if len(n.failed) > 0 {
		t.Errorf("%d of them failed, the first: %v", len(n.failed), n.failed[0])
	}
	eventually(t, settleTime, func() string { // a turn may be placed for the time being now, too
		moved, one := 0, ""
		for session, home := range n.homes {
			if now, err := turn(n.client, at, session); err != nil || now != home {
				moved, one = moved+1, fmt.Sprintf("%s was at %s, and is at %s, %v", session, home, now, err)
			}
		}
		if moved > provisional {
			return fmt.Sprintf("%d sessions are not where they were: %s", moved, one)
		}
		return ""
	})
}

const onTheWay = 20 // entries of a shard, a second's of all that comes to it

// spread says what keeps all shards from being settled on so many nodes, under load:
// replicas within one of even, leaders within two.
func spread(t *testing.T, n *testcluster.Node, nodes int) string {
	t.Helper()
	if why := settledBut(t, n, 3, onTheWay); why != "" {
		return why
	}
	var l api.ShardList
	if err := admin(t, n).Get(t.Context(), &l, "shards"); err != nil {
		return err.Error()
	}
	replicas, leaders := map[string]int{}, map[string]int{}
	for _, s := range l.Shards {
		leaders[s.LeaderID]++
		for _, r := range s.Replicas {
			if s.ID > 0 {
				replicas[r.ID]++
			}
		}
	}
	return uneven("replicas", replicas, nodes, 1) + uneven("leaders", leaders, nodes, 2)
}

func uneven(what string, counts map[string]int, nodes int, by float64) string {
	sum := 0
	for _, n := range counts {
		sum += n
	}
	even := float64(sum) / float64(nodes)
	if len(counts) > nodes || len(counts) < nodes && even > by {
		return fmt.Sprintf("%s are on %v, want %d nodes", what, counts, nodes)
	}
	for _, n := range counts {
		if float64(n) < even-by || float64(n) > even+by {
			return fmt.Sprintf("%s are on %v, even would be %.1f", what, counts, even)
		}
	}
	return ""
}

// bound is how many turns had a result, by a node's metrics.
func bound(page, result string) (sum int) {
	for line := range strings.Lines(page) {
		if rest, ok := strings.CutPrefix(line, "starling_sticky_lookups_total{"); ok && strings.Contains(rest, fmt.Sprintf("result=%q", result)) {
			_, value, _ := strings.Cut(rest, "} ")
			v, _ := strconv.Atoi(strings.TrimSpace(value))
			sum += v
		}
	}
	return sum
}
