package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/starling-lb/starling/node/admin"
	"github.com/starling-lb/starling/proxy/backend"
)

// filed is a node that was started with a file.
type filed struct {
	*Node
	t    *testing.T
	path string
	head string // what every version of the file begins with
}

const twoPools = `
pools:
  p: {backends: [{id: b1, url: http://127.0.0.1:1}, {id: b2, url: http://127.0.0.1:2}], health: {enabled: false}}
  q: {backends: [{id: b3, url: http://127.0.0.1:3}], health: {enabled: false}}
listeners:
  - {address: 127.0.0.1:0, routes: [{path_prefix: /q, pool: q}, {pool: p}]}
`

func newFiled(t *testing.T, rest string) *filed {
	t.Helper()
	dir := t.TempDir()
	f := &filed{t: t, path: filepath.Join(dir, "starling.yaml")}
	f.head = fmt.Sprintf("reload: {watch: false}\nnode: {name: n1, data_dir: %s/data}\nadmin: {address: 127.0.0.1:0}\n", dir)
	f.write(rest)
	cfg, err := Load(f.path)
	if err != nil {
		t.Fatal(err)
	}
	if f.Node, err = New(cfg, Options{File: f.path}); err != nil {
		t.Fatal(err)
	}
	if err := f.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.end)
	return f
}

func (f *filed) end() {
	now, cancel := context.WithCancel(context.Background())
	cancel()
	if err := f.Stop(now); err != nil {
		f.t.Error(err)
	}
}

func (f *filed) write(rest string) {
	f.t.Helper()
	if err := os.WriteFile(f.path, []byte(f.head+rest), 0o600); err != nil {
		f.t.Fatal(err)
	}
}

// again reloads another version of the file.
func (f *filed) again(rest string) {
	f.t.Helper()
	f.write(rest)
	if _, err := f.Reload(f.t.Context()); err != nil {
		f.t.Fatal(err)
	}
}

// shows is the pools with their backends, and ! where one is drained.
func (f *filed) shows() string {
	var words []string
	for _, p := range f.proxy.Pools() {
		words = append(words, p.Name+":")
		for _, b := range p.Backends() {
			word := fmt.Sprintf("%s*%d", b.ID, b.Terms().Weight)
			if b.Standing().State == backend.Draining {
				word += "!"
			}
			words = append(words, word)
		}
	}
	return strings.Join(words, " ")
}

// gauge is a metric of the node's own.
func (f *filed) gauge(name string) float64 {
	f.t.Helper()
	families, err := f.registry.Gather()
	if err != nil {
		f.t.Fatal(err)
	}
	for _, m := range families {
		if m.GetName() == "starling_"+name {
			return m.GetMetric()[0].GetGauge().GetValue()
		}
	}
	f.t.Fatalf("there is no metric %s", name)
	return 0
}

func TestReload(t *testing.T) {
	f := newFiled(t, twoPools)
	kept, hash, read := f.proxy.Pools()[0], f.Status().ConfigHash, f.gauge("reload_time_seconds")
	events, err := f.Events("", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer events.Close()
	if got, err := f.Reload(t.Context()); err != nil || got.Changed || got.ConfigHash != hash {
		t.Errorf("the same file: %+v, %v", got, err)
	}
	f.again(`
pools:
  p: {backends: [{id: b1, url: http://127.0.0.1:1, weight: 3}, {id: b4, url: http://127.0.0.1:4}], health: {interval: 7s}, outlier: {base_ejection: 9s}}
  r: {backends: [{id: b3, url: http://127.0.0.1:3}], policy: random}
listeners:
  - {address: 127.0.0.1:0, routes: [{path_prefix: /r, pool: r}, {pool: p}]}
  - {address: "localhost:0", routes: [{pool: r}]}
timeouts: {write_idle: 3s}
`)
	if got, want := f.shows(), "p: b1*3 b4*1 r: b3*1"; got != want {
		t.Errorf("in force is %q, want %q", got, want)
	}
	p := f.proxy.Pools()[0]
	if p != kept || p.Health().Interval != 7*time.Second || f.cfg().Timeouts.WriteIdle != 3*time.Second || len(f.ProxyAddrs()) != 2 {
		t.Errorf("the pool is %v, its checks go by %+v, the node listens on %v", p == kept, p.Health(), f.ProxyAddrs())
	}
	if s := f.Status(); s.ConfigHash == hash || f.gauge("reload_success") != 1 || f.gauge("reload_time_seconds") <= read {
		t.Errorf("hash %s as before, success %v, read at %v", s.ConfigHash, f.gauge("reload_success"), f.gauge("reload_time_seconds"))
	}
	heard := ""
	for !strings.Contains(heard, "configuration "+f.Status().ConfigHash+" is in force") {
		list, err := events.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range list {
			heard += string(e.Kind) + " " + e.Reason + "\n"
		}
	}
	if !strings.Contains(heard, "reload configuration") {
		t.Errorf("the events are %q", heard)
	}
	if err := f.DrainNode(t.Context()); err != nil {
		t.Fatal(err)
	}
	if f.again(twoPools); f.shows() != "p: b1*1 b2*1 q: b3*1" || !errors.Is(f.Ready(), ErrDraining) {
		t.Errorf("changed while set aside: %s, ready %v", f.shows(), f.Ready())
	}
}

// A file that is wrong in any way changes nothing, and each fault is told by its
// line.
func TestReloadRefused(t *testing.T) {
	f := newFiled(t, twoPools)
	hash, addrs := f.Status().ConfigHash, f.ProxyAddrs()
	for name, c := range map[string]struct{ rest, want string }{
		"half of it":          {twoPools[:len(twoPools)-40], "starling.yaml:"},
		"no pool":             {"listeners: [{address: 127.0.0.1:0}]\n", "pools: is missing"},
		"a wrong key":         {twoPools + "timeouts: {write_idel: 3s}\n", "starling.yaml:10: timeouts.write_idel"},
		"another log":         {twoPools + "log: {level: debug}\n", "starling.yaml:10: log.level: cannot change while the node runs"},
		"an access log":       {twoPools + "access_log: {path: /nowhere}\n", "access_log.path: cannot change"},
		"tracing":             {twoPools + "tracing: {otlp_endpoint: \"http://127.0.0.1:4318\"}\n", "tracing.otlp_endpoint: cannot change"},
		"a cluster":           {twoPools + "cluster: {bind: 127.0.0.1:7946}\n", "cluster.bind: cannot change"},
		"shards":              {twoPools + "shards: {count: 32}\n", "shards.count: cannot change"},
		"sessions":            {strings.Replace(twoPools, "q: {", "q: {sticky: {}, ", 1), "pools.q.sticky: cannot come"},
		"a port that is gone": {strings.Replace(twoPools, "listeners:", "listeners:\n  - {address: \""+addrs[0]+"\", routes: [{pool: q}]}", 1), "address already in use; end what listens there"},
		"a list of backends":  {strings.Replace(twoPools, "q: {", "q: {discovery: {file: /nowhere/list.yaml}, ", 1), "pools.q.discovery.file"},
	} {
		f.write(c.rest)
		_, err := f.Reload(t.Context())
		var refused *admin.Error
		if !errors.As(err, &refused) || refused.Code != admin.Conflict || !strings.Contains(refused.Message, c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if f.Status().ConfigHash != hash || f.shows() != "p: b1*1 b2*1 q: b3*1" || !slices.Equal(f.ProxyAddrs(), addrs) {
			t.Errorf("%s: something changed: %s", name, f.shows())
		}
		if f.gauge("reload_success") != 0 {
			t.Errorf("%s: the metric says that it was well", name)
		}
	}
	f.again(twoPools)
	if f.gauge("reload_success") != 1 {
		t.Error("the metric still says that it failed")
	}
	head := f.head
	f.head = strings.Replace(head, "name: n1", "name: n2, zone: z", 1)
	f.write(twoPools)
	if _, err := f.Reload(t.Context()); err == nil || !strings.Contains(err.Error(), "node.name: cannot") || !strings.Contains(err.Error(), "node.zone: cannot") {
		t.Errorf("another node: %v", err)
	}
	f.head = strings.Replace(head, "name: n1", "name: n1, drain_timeout: 7s", 1)
	if f.again(twoPools); f.DrainTimeout() != 7*time.Second {
		t.Errorf("the drain takes %v", f.DrainTimeout())
	}
	f.end()
	if _, err := f.Reload(t.Context()); err == nil {
		t.Error("a node that has ended is reloaded")
	}
}

func TestReloadNeedsAFile(t *testing.T) {
	n, release := drained(t, nil)
	defer release()
	if _, err := n.Reload(t.Context()); err == nil || !strings.Contains(err.Error(), "without a file") {
		t.Errorf("%v", err)
	}
}

// What operators decided outlives a reload, and what discovery found.
func TestReloadKeepsDecisions(t *testing.T) {
	f := newFiled(t, twoPools)
	list := filepath.Join(t.TempDir(), "list.yaml")
	if err := os.WriteFile(list, []byte("backends: [{id: b8, url: \"http://127.0.0.1:8\"}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{f.supply.hold("b1", true), f.supply.remove("p", "b2"), f.supply.weigh("b3", 5)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	const before = "p: b1*1! q: b3*5"
	if got := f.shows(); got != before {
		t.Fatalf("it begins with %q", got)
	}
	found := strings.Replace(twoPools, "q: {", "q: {discovery: {file: "+list+"}, ", 1) + "  - {address: \"localhost:0\", routes: [{pool: r}]}\n"
	found = strings.Replace(found, "pools:", "pools:\n  r: {discovery: {file: "+list+".2}}", 1)
	if err := os.WriteFile(list+".2", []byte("backends: [{id: b9, url: \"http://127.0.0.1:9\"}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f.again(found)
	if got, want := f.shows(), "p: b1*1! q: b3*5 b8*1 r: b9*1"; got != want {
		t.Errorf("with what was found: %q, want %q", got, want)
	}
	kept := f.attendants()["q"].finder
	f.again(strings.Replace(found, "q: {", "q: {backend: {engine: vllm}, ", 1))
	if f.attendants()["q"].finder != kept || f.shows() != "p: b1*1! q: b3*5 b8*1 r: b9*1" {
		t.Errorf("another engine: %q", f.shows())
	}
	f.again(twoPools)
	if got := f.shows(); got != before {
		t.Errorf("without discovery: %q, want %q", got, before)
	}
	if _, _, known := f.supply.have("b9"); known || len(f.attendants()) != 2 {
		t.Error("something of the pool that is gone is left")
	}
}

// A file is read when it was found twice as it is: not between, nor when it holds
// what was read.
func TestWatched(t *testing.T) {
	dir := t.TempDir()
	w := watched{path: filepath.Join(dir, "starling.yaml")}
	put := func(text string) {
		t.Helper()
		if err := os.WriteFile(w.path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	look := func(when string, want bool) {
		t.Helper()
		if got := w.changed(); got != want {
			t.Errorf("%s: changed is %v", when, got)
		}
	}
	put("one")
	look("first seen", false)
	look("still there", true)
	look("told of", false)
	put("tw")
	look("half written", false)
	put("two")
	look("whole", false)
	look("and it stands", true)
	if err := os.Remove(w.path); err != nil {
		t.Fatal(err)
	}
	look("gone", false)
	look("still gone", false)
	put("two")
	look("back", false)
	look("as it was", false)
	for _, version := range []string{"v1", "v2"} { // as Kubernetes swaps what it mounts
		if err := os.MkdirAll(filepath.Join(dir, version), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, version, "starling.yaml"), []byte(version), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(os.Symlink(version, filepath.Join(dir, "next")), os.Rename(filepath.Join(dir, "next"), filepath.Join(dir, "data"))); err != nil {
			t.Fatal(err)
		}
		w.path = filepath.Join(dir, "data", "starling.yaml")
		look(version+" is swapped in", false)
		look(version+" stands", true)
	}
}
