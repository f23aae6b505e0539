package node

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"go.uber.org/goleak"

	"github.com/starling-lb/starling/gossip"
	"github.com/starling-lb/starling/node/api"
	"github.com/starling-lb/starling/proxy"
)

const metricsReference = "../docs/reference/metrics.md"

// TestMetricsReference holds the reference's table against what a node exposes:
// the same metrics with the same types and labels, and every word that a label
// can say.
func TestMetricsReference(t *testing.T) {
	others := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, others) }) // after the node's own cleanup
	data, err := os.ReadFile(metricsReference)
	if err != nil {
		t.Fatal(err)
	}
	exposed, words := gathered(t)
	written := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(starling_[a-z_]+)` \\| ([a-z]+) \\| ([^|]*) \\| ([^|]+) \\| [^|]{10,} \\|$").FindAllStringSubmatch(string(data), -1) {
		if _, twice := written[row[1]]; twice {
			t.Errorf("%s has two rows", row[1])
		}
		written[row[1]] = row[2] + " " + strings.Join(regexp.MustCompile("[a-z]+").FindAllString(row[3], -1), ",")
		if unit := strings.TrimSpace(row[4]); strings.HasSuffix(row[1], "_seconds") != (unit == "s") {
			t.Errorf("%s: unit %q", row[1], unit)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(exposed)) {
		if written[name] != exposed[name] {
			t.Errorf("%s: written %q, exposed %q", name, written[name], exposed[name])
		}
	}
	for name := range written {
		if exposed[name] == "" {
			t.Errorf("%s is written, and not exposed", name)
		}
	}
	for _, w := range words {
		if !strings.Contains(string(data), "`"+w+"`") {
			t.Errorf("label value %q is not explained", w)
		}
	}
}

// gathered is what a node exposes that has turned one request away: every
// metric of starling's own with its type and labels, and the values of labels
// that take words of ours.
func gathered(t *testing.T) (exposed map[string]string, words []string) {
	n := startBare(t)
	if answer := askBare(t, n.ProxyAddrs()[0]); !strings.Contains(answer, "no_backend") {
		t.Fatalf("the pool without backends answered %q", answer)
	}
	joinBare(t, n)
	addEngine(t, n)
	families := gatherLed(t, n)
	exposed = map[string]string{}
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "starling_") {
			continue
		}
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName())
				if slices.Contains([]string{"reason", "state", "kind", "cause"}, l.GetName()) {
					words = append(words, l.GetValue())
				}
			}
			exposed[f.GetName()] = strings.ToLower(f.GetType().String()) + " " + strings.Join(labels, ",")
		}
	}
	slices.Sort(words)
	return exposed, slices.Compact(words)
}

// addEngine gives the node a backend whose engine tells its load, and waits until
// it was heard.
func addEngine(t *testing.T, n *Node) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "vllm:num_requests_running 3\nvllm:num_requests_waiting 1\nvllm:kv_cache_usage_perc 0.5\n")
	}))
	t.Cleanup(s.Close)
	if err := n.AddBackend("used", api.NewBackend{ID: "engine", URL: s.URL, Weight: 1}); err != nil {
		t.Fatal(err)
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(20 * time.Second); ; <-tick.C {
		list := n.Backends().Backends
		i := slices.IndexFunc(list, func(b api.Backend) bool { return b.ID == "engine" })
		if i >= 0 && list[i].Engine != nil {
			if got := *list[i].Engine; got != (api.Engine{Name: "vllm", Running: 3, Waiting: 1, Cache: 0.5}) {
				t.Errorf("the engine said %+v", got)
			}
			return
		}
		if time.Now().After(end) {
			t.Fatal("the engine was not heard")
		}
	}
}

// joinBare gives the node another one in its cluster, and waits until it has
// spoken.
func joinBare(t *testing.T, n *Node) {
	other, err := gossip.New(gossip.Config{Bind: "127.0.0.1:0", Seeds: []string{n.cluster.Load().Addr().String()}}, gossip.Options{ID: "other", Self: gossip.Meta{Name: "lb-2"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := other.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(20 * time.Second); len(n.cluster.Load().ReportAges()) == 0; <-tick.C {
		if time.Now().After(end) {
			t.Fatal("the other node did not join")
		}
	}
}

// gatherLed waits until the node leads its shards: some metrics are of a leader's.
func gatherLed(t *testing.T, n *Node) []*dto.MetricFamily {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(30 * time.Second); ; <-tick.C {
		families, err := n.registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		led := slices.ContainsFunc(families, func(f *dto.MetricFamily) bool { return f.GetName() == "starling_shard_leader" })
		if led || time.Now().After(end) {
			return families
		}
	}
}

// startBare starts a node with one backend that nobody asks and a pool without
// any, to which every request goes.
func startBare(t *testing.T) *Node {
	cert, key := selfSigned(t, "lb")
	file := fmt.Sprintf(`
node: {data_dir: %q}
admin: {address: "127.0.0.1:0"}
cluster: {bind: "127.0.0.1:0", rpc: "127.0.0.1:0", bootstrap_expect: 1}
listeners:
  - {address: "127.0.0.1:0"}
  - {address: "127.0.0.1:0", tls: {cert_file: %q, key_file: %q}, proxy_protocol: true, trusted_proxies: [10.0.0.0/8]}
pools: {used: {backends: ["http://127.0.0.1:1"], placement: {second: random}, sticky: {}}}
`, t.TempDir(), cert, key)
	cfg, err := Parse("bare.yaml", []byte(file), os.LookupEnv)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Pools["bare"] = proxy.DefaultPool()
	cfg.Listeners[0].Routes = []proxy.RouteConfig{{PathPrefix: "/", Pool: "bare"}}
	n, err := New(cfg, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return n
}

func askBare(t *testing.T, addr string) string {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(c)
	if err != nil {
		t.Fatal(err)
	}
	return string(answer)
}
