package rolling

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/starling-lb/starling/node"
	"github.com/starling-lb/starling/node/api"
	"github.com/starling-lb/starling/node/client"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	patience = 60 * time.Second // no wait is longer, on a machine that does much else
	shards   = 4
	events   = 15 // of a stream
	pace     = 20 * time.Millisecond
)

// fleet is nodes of one cluster, each with a file of its own, and their backends.
type fleet struct {
	t     *testing.T
	dir   string
	nodes []*node.Node
	admin []*client.Client
	urls  []string // of the nodes' proxies
	at    []addresses
	given []addresses // as their files say
	size  int
	file  func(i int) string // what stands in a node's file besides its name and addresses

	versions int // of files, so far
}

// addresses are a node's, any free ones at first, and the same ones when it comes
// back.
type addresses struct{ gossip, rpc, admin, proxy string }

// newFleet starts as many nodes, and waits until they agree.
func newFleet(t *testing.T, nodes int, file func(i int) string) *fleet {
	f := &fleet{t: t, dir: t.TempDir(), file: file, size: nodes}
	for i := range nodes {
		const free = "127.0.0.1:0"
		f.nodes, f.admin, f.urls = append(f.nodes, nil), append(f.admin, nil), append(f.urls, "")
		f.at, f.given = append(f.at, addresses{}), append(f.given, addresses{free, free, free, free})
		f.start(i)
	}
	t.Cleanup(func() {
		for i := range f.nodes {
			f.stop(i, 100*time.Millisecond)
		}
	})
	f.settle()
	return f
}

// path is a node's file, in a directory as Kubernetes mounts a ConfigMap: the file
// is a link into "..data", which is a link to what holds now.
func (f *fleet) path(i int) string {
	return filepath.Join(f.dir, fmt.Sprint("c", i+1), "starling.yaml")
}

// text is a node's file.
func (f *fleet) text(i int) string {
	at := f.given[i]
	var seeds []string
	for _, other := range f.at[:i] {
		seeds = append(seeds, fmt.Sprintf("%q", other.gossip))
	}
	return fmt.Sprintf(`node: {name: n%d, data_dir: %q, drain_timeout: 10s}
cluster: {bind: %q, rpc: %q, seeds: [%s], bootstrap_expect: %d}
shards: {count: %d}
admin: {address: %q}
listeners: [{address: %q, routes: [{pool: llm}]}]
`, i+1, filepath.Join(f.dir, fmt.Sprint("n", i+1)), at.gossip, at.rpc, strings.Join(seeds, ", "), f.size, shards, at.admin, at.proxy) + f.file(i)
}

// write puts another version of a node's file in place, as the kubelet does.
func (f *fleet) write(i int) {
	f.t.Helper()
	dir := filepath.Dir(f.path(i))
	f.versions++
	version := fmt.Sprint("..v", f.versions)
	data, next := filepath.Join(dir, "..data"), filepath.Join(dir, "..data_tmp")
	err := os.MkdirAll(filepath.Join(dir, version), 0o700)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, version, "starling.yaml"), []byte(f.text(i)), 0o600)
	}
	if err == nil {
		err = os.Symlink(version, next)
	}
	old, _ := os.Readlink(data) // none the first time
	if err == nil {
		err = os.Rename(next, data)
	}
	if err == nil && old == "" {
		err = os.Symlink(filepath.Join("..data", "starling.yaml"), f.path(i))
	}
	if err == nil && old != "" {
		err = os.RemoveAll(filepath.Join(dir, old))
	}
	if err != nil {
		f.t.Fatal(err)
	}
}

// start starts a node by its file. What it waits for to be founded it does not
// wait for here.
func (f *fleet) start(i int) {
	f.t.Helper()
	if f.nodes[i] != nil {
		f.given[i] = f.at[i]
	}
	f.write(i)
	config, err := node.Load(f.path(i))
	if err != nil {
		f.t.Fatal(err)
	}
	n, err := node.New(config, node.Options{File: f.path(i), Logger: slog.New(slog.DiscardHandler)})
	if err == nil {
		err = n.Start(f.t.Context())
	}
	if err != nil {
		f.t.Fatal(err)
	}
	f.nodes[i], f.urls[i] = n, "http://"+n.ProxyAddrs()[0]
	f.at[i] = addresses{n.GossipAddr(), n.RPCAddr(), n.AdminAddr(), n.ProxyAddrs()[0]}
	if f.admin[i], err = client.New("http://"+n.AdminAddr(), ""); err != nil {
		f.t.Fatal(err)
	}
}

// stop ends a node as SIGTERM does, and tells how many streams its deadline cut.
func (f *fleet) stop(i int, within time.Duration) (cut int64) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	if err := f.nodes[i].Stop(ctx); err != nil {
		f.t.Errorf("stop n%d: %v", i+1, err)
	}
	return f.nodes[i].Drained().Cut
}

// eventually waits until look finds nothing wrong.
func (f *fleet) eventually(look func() string) {
	f.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for by := time.Now().Add(patience); ; <-tick.C {
		wrong := look()
		if wrong == "" {
			return
		}
		if time.Now().After(by) {
			f.t.Fatalf("after %v still: %s", patience, wrong)
		}
	}
}

// settle waits until all nodes know of leaders, and leaders of replicas that keep up.
func (f *fleet) settle() {
	f.t.Helper()
	for i := range f.nodes {
		f.eventually(func() string { return f.unsettled(i) })
	}
}

func (f *fleet) unsettled(i int) string {
	var l api.ShardList
	if err := f.admin[i].Get(f.t.Context(), &l, "shards"); err != nil {
		return err.Error()
	}
	if len(l.Shards) != shards+1 {
		return fmt.Sprintf("n%d knows of %d shards", i+1, len(l.Shards))
	}
	for _, s := range l.Shards {
		voters := 0
		for _, r := range s.Replicas {
			if r.Role == api.LeaderRole || r.Role == api.VoterRole && r.Match > 0 && r.Lag == 0 {
				voters++
			}
		}
		if s.Leader == "" || voters != 3 || len(s.Replicas) != 3 || s.Step != nil {
			return fmt.Sprintf("n%d says of shard %d: %+v", i+1, s.ID, s)
		}
	}
	return ""
}

// places is who has replicas of each shard, and of which life.
func (f *fleet) places(i int) string {
	f.t.Helper()
	var l api.ShardList
	if err := f.admin[i].Get(f.t.Context(), &l, "shards"); err != nil {
		f.t.Fatal(err)
	}
	var text []string
	for _, s := range l.Shards {
		var on []string
		for _, r := range s.Replicas {
			on = append(on, r.Node)
		}
		slices.Sort(on)
		text = append(text, fmt.Sprintf("%d.%d: %s", s.ID, s.Incarnation, strings.Join(on, " ")))
	}
	slices.Sort(text)
	return strings.Join(text, "; ")
}

// homes is where each session lives, and since which epoch.
func (f *fleet) homes(i int) map[string]string {
	f.t.Helper()
	all := map[string]string{}
	for _, key := range sessions() {
		var s api.Session
		f.eventually(func() string {
			s = api.Session{}
			if err := f.admin[i].Get(f.t.Context(), &s, "sessions", "llm", key); err != nil {
				return fmt.Sprintf("n%d of session %s: %v", i+1, key, err)
			}
			return ""
		})
		all[key] = fmt.Sprintf("%s epoch %d provisional %v", s.Backend, s.Epoch, s.Provisional)
	}
	return all
}

func sessions() (keys []string) {
	for i := range 30 {
		keys = append(keys, fmt.Sprint("s", i))
	}
	return keys
}

// newOrigin is a backend that streams, and says on each answer who it is.
func newOrigin(t *testing.T, id string) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("X-Backend", id)
		w.Header().Set("Content-Type", "text/event-stream")
		tick := time.NewTicker(pace)
		defer tick.Stop()
		for range events {
			_, _ = io.WriteString(w, "data: x\n\n")
			w.(http.Flusher).Flush()
			select {
			case <-tick.C:
			case <-q.Context().Done():
				return
			}
		}
		_, _ = io.WriteString(w, "data: [DONE]\n\n")
	}))
	t.Cleanup(s.Close)
	return s.URL
}
