package node

import (
	"bytes"
	"errors"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"github.com/starling-lb/starling/node/yamlstrict"
	"github.com/starling-lb/starling/proxy"
	"github.com/starling-lb/starling/proxy/backend"
)

var update = flag.Bool("update", false, "write what the tests expect anew")

const smallest = `
listeners:
  - address: 127.0.0.1:8080
pools:
  llm:
    backends: ["http://127.0.0.1:9001"]
`

func noEnv(string) (string, bool) { return "", false }

func parse(t *testing.T, text string) Config {
	t.Helper()
	c, err := Parse("test.yaml", []byte(text), noEnv)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// faults are those of a text, or none.
func faults(t *testing.T, text string) []Fault {
	t.Helper()
	_, err := Parse("test.yaml", []byte(text), noEnv)
	var all *FaultsError
	if err != nil && !errors.As(err, &all) {
		t.Fatalf("error is %T, want *FaultsError", err)
	}
	if all == nil {
		return nil
	}
	return all.Faults
}

// full is what testdata/full.yaml must load to: every default, and one of each
// element.
func full() Config {
	c := DefaultConfig()
	c.Node.Name = "lb-1"
	l, r, p, b := proxy.DefaultListener(), proxy.DefaultRoute(), proxy.DefaultPool(), backend.DefaultConfig()
	b.ID, b.URL = "127.0.0.1:9001", "http://127.0.0.1:9001"
	p.Backends = []backend.Config{b}
	sessions := proxy.DefaultSession()
	p.Sticky = &sessions
	r.Pool = "llm"
	l.Address, l.Routes = "127.0.0.1:8080", []proxy.RouteConfig{r}
	c.Listeners, c.Pools = []proxy.ListenerConfig{l}, map[string]proxy.PoolConfig{"llm": p}
	return c
}

// keys flattens a file to its keys, as patterns, with their values. A list of
// sections counts as a key of its own, with the value "list".
func keys(t *testing.T, data []byte) (order []string, values map[string]string) {
	t.Helper()
	var doc yaml.Node
	if err := yaml.Load(data, &doc); err != nil {
		t.Fatal(err)
	}
	values = map[string]string{}
	put := func(key, value string) {
		if _, ok := values[key]; !ok {
			order = append(order, key)
		}
		values[key] = value
	}
	var walk func(key string, n *yaml.Node)
	walk = func(key string, n *yaml.Node) {
		switch {
		case n.Kind == yaml.MappingNode && len(n.Content) > 0:
			for i := 0; i < len(n.Content); i += 2 {
				name := n.Content[i].Value
				if key == "pools" {
					name = "*"
				}
				walk(strings.TrimPrefix(key+"."+name, "."), n.Content[i+1])
			}
		case n.Kind == yaml.SequenceNode && len(n.Content) > 0 && n.Content[0].Kind == yaml.MappingNode:
			put(key, "list")
			for _, item := range n.Content {
				walk(key+"[]", item)
			}
		case n.Kind == yaml.SequenceNode:
			put(key, "[]")
		case n.Kind == yaml.MappingNode:
			put(key, "{}")
		default:
			put(key, n.Value)
		}
	}
	walk("", doc.Content[0])
	return order, values
}

func fullKeys(t *testing.T) (order []string, values map[string]string) {
	t.Helper()
	data, err := yamlstrict.Encode(full())
	if err != nil {
		t.Fatal(err)
	}
	return keys(t, data)
}

func TestSmallestFileIsComplete(t *testing.T) {
	c := parse(t, smallest)
	want := full()
	want.Node.Name, _ = os.Hostname()
	pool := want.Pools["llm"]
	pool.Sticky = nil
	want.Pools["llm"] = pool
	if !reflect.DeepEqual(c, want) {
		t.Errorf("got %+v\nwant %+v", c, want)
	}
}

func TestOnlyPoolTakesEveryListener(t *testing.T) {
	c := parse(t, "listeners: [{address: 'a:1'}, {address: 'a:2', routes: [{path_prefix: /v1, pool: llm}]}]\npools: {llm: {backends: ['http://[::1]:80']}}")
	if r := c.Listeners[0].Routes; len(r) != 1 || r[0].Pool != "llm" || r[0].PathPrefix != "/" {
		t.Errorf("listener without routes has %+v, want everything to llm", r)
	}
	if r := c.Listeners[1].Routes; len(r) != 1 || r[0].PathPrefix != "/v1" {
		t.Errorf("listener with routes has %+v, want its own", r)
	}
	if id := c.Pools["llm"].Backends[0].ID; id != "[::1]:80" {
		t.Errorf("default id is %q, want host:port", id)
	}
}

func TestFullFile(t *testing.T) {
	c, err := Load("testdata/full.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(c, full()) {
		t.Errorf("full.yaml differs from the defaults\ngot  %+v\nwant %+v", c, full())
	}
	data, err := os.ReadFile("testdata/full.yaml")
	if err != nil {
		t.Fatal(err)
	}
	got, _ := keys(t, data)
	want, _ := fullKeys(t)
	if !slices.Equal(got, want) {
		t.Errorf("full.yaml lists other keys than the structs, or in another order\ngot  %v\nwant %v", got, want)
	}
}

func TestPrintedFileLoadsToTheSame(t *testing.T) {
	c := full()
	l := &c.Listeners[0]
	l.TrustedProxies, l.MaxConnections, l.MaxRequestHeader = []string{"10.0.0.0/8"}, 0, 1<<16+1
	l.Routes[0].Headers = map[string]string{"x-kind": "${not} a # comment", "null": "~", "y": ""}
	l.ReadyPath = "/true: [yes]"
	pool := c.Pools["llm"]
	pool.Timeouts.Connect = 90_500_000_000
	pool.Limits.MaxRequestBody = 3 << 30
	c.Pools["llm"] = pool
	c.Pools["1.5"] = proxy.DefaultPool()
	other := c.Pools["1.5"]
	other.Backends = []backend.Config{{ID: "yes", URL: "http://h:1", Weight: 7}}
	c.Pools["1.5"] = other
	var out bytes.Buffer
	if err := Print(&out, c); err != nil {
		t.Fatal(err)
	}
	if got := parse(t, out.String()); !reflect.DeepEqual(got, c) {
		t.Errorf("got %+v\nwant %+v\nprinted\n%s", got, c, &out)
	}
}

func TestHash(t *testing.T) {
	base := full().Hash()
	if !regexp.MustCompile(`^[0-9a-f]{12}$`).MatchString(base) {
		t.Errorf("hash is %q, want 12 hex digits", base)
	}
	for _, tt := range []struct {
		what   string
		change func(*Config)
		same   bool
	}{
		{"nothing", func(*Config) {}, true},
		{"node.name", func(c *Config) { c.Node.Name = "lb-2" }, true},
		{"node.data_dir", func(c *Config) { c.Node.DataDir = "/var/lib/starling" }, true},
		{"node.zone", func(c *Config) { c.Node.Zone = "b" }, true},
		{"where it gossips", func(c *Config) { c.Cluster.Bind, c.Cluster.Seeds = "127.0.0.1:1", []string{"a:1"} }, true},
		{"where it calls", func(c *Config) { c.Cluster.RPC, c.Cluster.TLS.CertFile = "127.0.0.1:2", "lb-2.crt" }, true},
		{"shards.host", func(c *Config) { c.Shards.Host = false }, true},
		{"shards.count", func(c *Config) { c.Shards.Count = 64 }, false},
		{"cluster.label", func(c *Config) { c.Cluster.Label = "blue" }, false},
		{"admin.address", func(c *Config) { c.Admin.Address = "127.0.0.1:9902" }, true},
		{"a listener's address", func(c *Config) { c.Listeners[0].Address = "127.0.0.1:8081" }, true},
		{"node.drain_timeout", func(c *Config) { c.Node.DrainTimeout++ }, false},
		{"a listener's limit", func(c *Config) { c.Listeners[0].MaxConnections = 5 }, false},
		{"another pool", func(c *Config) { c.Pools["more"] = c.Pools["llm"] }, false},
		{"a backend's weight", func(c *Config) { c.Pools["llm"].Backends[0].Weight = 2 }, false},
	} {
		c := full()
		tt.change(&c)
		before := c.Listeners[0].Address
		if got := c.Hash(); (got == base) != tt.same {
			t.Errorf("%s: hash %s beside %s, want same: %v", tt.what, got, base, tt.same)
		}
		if c.Listeners[0].Address != before {
			t.Errorf("%s: Hash changed the configuration", tt.what)
		}
	}
}

// TestBroken compares what Load says of each broken file with its .want.
func TestBroken(t *testing.T) {
	t.Chdir("testdata/broken")
	files, err := filepath.Glob("*.yaml")
	if err != nil || len(files) < 20 {
		t.Fatalf("%d broken files (%v), want 20 or more", len(files), err)
	}
	form := regexp.MustCompile(`^[a-z0-9_]+\.yaml:[1-9][0-9]*: \S.*: .*[;,?] ?`)
	for _, file := range files {
		_, err := Load(file)
		var all *FaultsError
		if !errors.As(err, &all) {
			t.Errorf("%s: error is %v, want faults", file, err)
			continue
		}
		for _, f := range all.Faults {
			if !form.MatchString(f.String()) {
				t.Errorf("%q is not FILE:LINE: KEY: what is wrong, what would be right", f)
			}
		}
		if !slices.IsSortedFunc(all.Faults, func(a, b Fault) int { return a.Line - b.Line }) {
			t.Errorf("%s: faults are not in the order of lines", file)
		}
		compare(t, strings.TrimSuffix(file, ".yaml")+".want", err.Error()+"\n")
	}
}

// compare holds got against a file; -update writes the file instead.
func compare(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Error(err)
		return
	}
	if string(want) != got {
		t.Errorf("%s differs\ngot\n%s\nwant\n%s", file, got, want)
	}
}

func TestLoadUnreadable(t *testing.T) {
	dir := t.TempDir()
	long := filepath.Join(dir, "long.yaml")
	if err := os.WriteFile(long, bytes.Repeat([]byte("#"), maxFile+1), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		filepath.Join(dir, "none.yaml"): "no such file",
		dir:                             "no regular file",
		long:                            "longer than 4MiB",
	} {
		_, err := Load(path)
		var all *FaultsError
		if !errors.As(err, &all) || len(all.Faults) != 1 || !strings.HasPrefix(err.Error(), path+":1: yaml: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("Load(%s): %v, want one fault with %q", path, err, want)
		}
	}
}

// TestContractKeys holds the contract's example against what is built and what
// is known not to be: a key is one of them, never both, never neither.
func TestContractKeys(t *testing.T) {
	data, err := os.ReadFile("testdata/contract.yaml")
	if err != nil {
		t.Fatal(err)
	}
	_, contract := keys(t, data)
	_, built := fullKeys(t)
	unbuilt := notYet()
	for key := range contract {
		_, b := built[key]
		_, u := unbuilt[key]
		if b == u {
			t.Errorf("%s: built %v, not built %v; want one of them", key, b, u)
		}
	}
	added := []string{
		"listeners[].max_client_connections",
		"cluster.gossip_keys_file", // stands in a comment of the contract
		"pools.*.placement.second", "pools.*.placement.second_share",
	}
	for key := range built {
		if _, ok := contract[key]; !ok && !slices.Contains(added, key) {
			t.Errorf("%s is built, and neither in the contract nor added to it", key)
		}
	}
	for key := range unbuilt {
		_, ok := contract[key]
		last := key[strings.LastIndex(key, ".")+1:]
		if _, word, isWord := strings.Cut(key, "="); isWord {
			last = word
		}
		if !ok && !bytes.Contains(data, []byte(last)) { // gossip_keys_file and policies stand in comments
			t.Errorf("%s is not built, and not in the contract either", key)
		}
	}
}

func TestContractPolicies(t *testing.T) {
	data, err := os.ReadFile("testdata/contract.yaml")
	if err != nil {
		t.Fatal(err)
	}
	closed := regexp.MustCompile(`policy: p2c +# closed: (.*)`).FindSubmatch(data)
	if closed == nil {
		t.Fatal("the contract's list of policies is gone")
	}
	field, _ := reflect.TypeFor[proxy.PoolConfig]().FieldByName("Policy")
	got := strings.Split(field.Tag.Get("enum"), ",")
	for key := range notYet() {
		if word, ok := strings.CutPrefix(key, "pools.*.policy="); ok {
			got = append(got, word)
		}
	}
	want := strings.Fields(string(closed[1]))
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("built and not built are %v, the contract has %v", got, want)
	}
}

// TestNotYet writes each key that is not built into a good file: with the value
// that asks for nothing, and with one that does not.
func TestNotYet(t *testing.T) {
	for _, pattern := range slices.Sorted(maps.Keys(notYet())) {
		off := notYet()[pattern]
		path, word, isWord := strings.Cut(pattern, "=")
		key := strings.NewReplacer("*", "llm", "[]", "[0]").Replace(path)
		if !isWord {
			word = "something"
		}
		refused := slices.ContainsFunc(faults(t, with(t, path, word)), func(f Fault) bool {
			return strings.Contains(f.Text, "not supported yet") && (f.Key == key || strings.HasPrefix(key, f.Key+"."))
		})
		if !refused {
			t.Errorf("%s: %s is not refused as not supported yet", key, word)
		}
		if off == "" {
			continue
		}
		if got := faults(t, with(t, path, off)); got != nil {
			t.Errorf("%s: %s: %v, want it accepted", key, off, got)
		}
	}
}

// with is the smallest file with a value put in at a pattern.
func with(t *testing.T, pattern, value string) string {
	t.Helper()
	var v any
	if err := yaml.Load([]byte(value), &v); err != nil {
		t.Fatal(err)
	}
	names := strings.Split(pattern, ".")
	for _, name := range slices.Backward(names[1:]) {
		if short, isList := strings.CutSuffix(name, "[]"); isList {
			m := v.(map[string]any)
			m["url"], m["pool"] = "http://127.0.0.1:9001", "llm"
			delete(m, map[string]string{"backends": "pool", "routes": "url"}[short])
			name, v = short, []any{v}
		}
		v = map[string]any{name: v}
	}
	file := map[string]any{
		"listeners": []any{map[string]any{"address": "127.0.0.1:8080"}},
		"pools":     map[string]any{"llm": map[string]any{"backends": []any{"http://127.0.0.1:9001"}}},
	}
	switch names[0] {
	case "listeners[]":
		maps.Copy(file["listeners"].([]any)[0].(map[string]any), v.(map[string]any))
	case "pools":
		pool := v.(map[string]any)["*"].(map[string]any)
		maps.Copy(file["pools"].(map[string]any)["llm"].(map[string]any), pool)
	default:
		file[names[0]] = v
	}
	data, err := yaml.Dump(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// FuzzParse: nothing panics, and what loads prints to what loads to the same.
func FuzzParse(f *testing.F) {
	for _, glob := range []string{"testdata/*.yaml", "testdata/broken/*.yaml"} {
		files, err := filepath.Glob(glob)
		if err != nil || len(files) == 0 {
			f.Fatalf("no seeds in %s (%v)", glob, err)
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(data)
		}
	}
	f.Add([]byte(smallest))
	env := func(name string) (string, bool) { return name + "${X}", name != "NONE" }
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Parse("fuzz.yaml", data, env)
		if err != nil {
			if err.Error() == "" || strings.Count(err.Error(), "\n") > 200 {
				t.Errorf("error is %q", err)
			}
			return
		}
		Hints(c)
		var out bytes.Buffer
		if err := Print(&out, c); err != nil {
			t.Fatal(err)
		}
		again, err := Parse("printed.yaml", out.Bytes(), noEnv)
		if err != nil {
			t.Fatalf("%v\nprinted\n%s", err, &out)
		}
		if !reflect.DeepEqual(c, again) || c.Hash() != again.Hash() {
			t.Errorf("loads to\n%+v\nprinted\n%s\nloads to\n%+v", c, &out, again)
		}
	})
}
