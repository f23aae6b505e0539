package promise_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/starling-lb/starling/node"
	"github.com/starling-lb/starling/node/api"
	"github.com/starling-lb/starling/node/client"
	"github.com/starling-lb/starling/proxy"
	"github.com/starling-lb/starling/testcluster"
)

// TestMain has many tests wait at once in the short form: most of what they do is to
// wait for leases, deaths and streams.
func TestMain(m *testing.M) {
	flag.Parse()
	if !*full {
		if err := flag.Set("test.parallel", "3"); err != nil {
			panic(err)
		}
	}
	goleak.VerifyTestMain(m)
}

// full has the tests take longer, and hold what takes its time to the promise's own
// figures: for a machine that does nothing else.
var full = flag.Bool("promise.full", false, "three minutes for each of the long runs, and the limits of a quiet machine")

// The bounds of waits here: no test is about how fast a busy machine is.
const (
	patience   = time.Minute
	settleTime = 2 * time.Minute
)

const pool = testcluster.PoolName

// lasts is how long the long runs take at least: until they have shown something, on a
// busy machine.
func lasts() time.Duration {
	if *full {
		return 3 * time.Minute
	}
	return 10 * time.Second
}

// stage is a cluster in this process, its backends' ledger and a client.
type stage struct {
	*testcluster.Cluster
	*ledger
	client *http.Client
	logs   []string
}

func newStage(t *testing.T, nodes int, edit func(*node.Config), dial proxy.Dialer) *stage {
	t.Helper()
	s := &stage{ledger: newLedger(), client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}}
	t.Cleanup(s.client.CloseIdleConnections)
	backends, dir := s.backends(t, 3), t.TempDir()
	for i := range nodes {
		s.logs = append(s.logs, filepath.Join(dir, fmt.Sprintf("n%d.log", i+1)))
	}
	s.Cluster = testcluster.ForTest(t, testcluster.Options{Nodes: nodes, Dial: dial, Config: func(cfg *node.Config) {
		p := cfg.Pools[pool]
		p.Backends, p.Health.Enabled, p.Backend.Engine = backends, false, "none"
		p.Rebalance.Enabled = false // a crowd of turns is no reason to move
		sticky := proxy.DefaultSession()
		sticky.EpochHeader = epochHeader
		p.Sticky, p.Headers.ExposeBackend = &sticky, true
		cfg.Pools[pool] = p
		cfg.Shards.Count = 4
		cfg.AccessLog.Path = filepath.Join(dir, cfg.Node.Name+".log")
		edit(cfg)
	}})
	for i := range nodes {
		eventually(t, settleTime, func() string { return whole(s.admin(t, i), min(nodes, 3)) })
	}
	return s
}

// sticky changes the sessions of a configuration's pool.
func sticky(cfg *node.Config, change func(*proxy.SessionConfig)) {
	change(cfg.Pools[pool].Sticky)
}

func (s *stage) admin(t *testing.T, i int) *client.Client {
	t.Helper()
	c, err := clientOf(s.Node(i).AdminURL())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func clientOf(adminURL string) (*client.Client, error) { return client.New(adminURL, "") }

// whole says what a node lacks: every shard has a leader and so many voters that keep
// up.
func whole(c *client.Client, replicas int) string {
	var l api.ShardList
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := c.Get(ctx, &l, "shards"); err != nil {
		return err.Error()
	}
	if len(l.Shards) < 5 {
		return fmt.Sprintf("%d shards are known", len(l.Shards))
	}
	for _, s := range l.Shards {
		voters := 0
		for _, r := range s.Replicas {
			if r.Role == api.LeaderRole || r.Role == api.VoterRole && r.Match > 0 && r.Lag == 0 {
				voters++
			}
		}
		if s.Leader == "" || voters != replicas {
			return fmt.Sprintf("shard %d is led by %q, and %d of %d replicas keep up", s.ID, s.Leader, voters, replicas)
		}
	}
	return ""
}

// eventually waits until look finds nothing wrong.
func eventually(t *testing.T, within time.Duration, look func() string) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(within); ; <-tick.C {
		began := time.Now()
		wrong := look()
		if wrong == "" {
			return
		}
		if began.After(deadline) {
			t.Fatalf("after %v still: %s", within, wrong)
		}
	}
}

// pauseFor waits, unless ctx ends.
func pauseFor(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// errRefused is a turn that starling answered itself; the code stands before it.
var errRefused = errors.New("the turn was refused")

// turn is one of a session at a node, for a time; at hears of its backend once its
// head has come, if it does. An error means that it was not answered whole.
func turn(ctx context.Context, c *http.Client, url, session, query string, at func(string)) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/?"+query, nil)
	if err != nil {
		return err
	}
	req.Header.Set("X-Session-ID", session)
	resp, err := c.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %w with %d", resp.Header.Get("X-Starling-Error"), errRefused, resp.StatusCode)
	}
	if at != nil {
		at(resp.Header.Get("X-Starling-Backend"))
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

// isLate says whether a turn was refused because nobody could be asked in time: strict,
// on a busy machine.
func isLate(err error) bool {
	return errors.Is(err, errRefused) && strings.HasPrefix(err.Error(), "no_leader")
}

// insist takes a turn until it is not refused for being late.
func (s *stage) insist(ctx context.Context, i int, session, query string, at func(string)) error {
	for {
		err := turn(ctx, s.client, s.Node(i).URL(), session, query, at)
		if !isLate(err) || ctx.Err() != nil {
			return err
		}
		pauseFor(ctx, 50*time.Millisecond)
	}
}

// at takes a short turn that must be answered, and says by whom.
func (s *stage) at(t *testing.T, i int, session string) (home string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := s.insist(ctx, i, session, "for=0s", func(b string) { home = b }); err != nil {
		t.Fatalf("%s at node %d: %v", session, i, err)
	}
	return home
}

// session is one as its shard's leader knows it; it is bound, or soon will be.
func (s *stage) session(t *testing.T, i int, session string) (v api.Session) {
	t.Helper()
	eventually(t, settleTime, func() string { // on a busy machine the leader's answer may be late
		v = api.Session{}
		if err := s.admin(t, i).Get(t.Context(), &v, "sessions", pool, session); err != nil {
			return err.Error()
		}
		if v.Provisional || v.Epoch == 0 {
			return fmt.Sprintf("%s is not bound: %+v", session, v)
		}
		return ""
	})
	return v
}

// living is how many sessions a backend has, as a node knows.
func living(c *client.Client, id string) (int, error) {
	var l api.Backends
	if err := c.Get(context.Background(), &l, "backends"); err != nil {
		return 0, err
	}
	for _, b := range l.Backends {
		if b.ID == id {
			return b.Sessions, nil
		}
	}
	return 0, nil
}

// metric sums the samples of one metric whose labels hold all of with.
func metric(t *testing.T, adminURL, name string, with ...string) (sum float64) {
	t.Helper()
	resp, err := http.Get(adminURL + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	for l := range strings.Lines(string(text)) {
		labels, value, ok := strings.Cut(strings.TrimSpace(l), " ")
		matches := ok && (labels == name || strings.HasPrefix(labels, name+"{"))
		for _, w := range with {
			matches = matches && strings.Contains(labels, w)
		}
		if v, err := strconv.ParseFloat(value, 64); matches && err == nil {
			sum += v
		}
	}
	return sum
}

// sum adds a metric over nodes.
func (s *stage) sum(t *testing.T, nodes int, name string, with ...string) (all float64) {
	t.Helper()
	for i := range nodes {
		all += metric(t, s.Node(i).AdminURL(), name, with...)
	}
	return all
}
