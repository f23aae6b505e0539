package gossip

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// logBook is a log that a test reads.
type logBook struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logBook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logBook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *logBook) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

func testKey(n byte) string { return base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{n}, 32)) }

// TestStrangers: who differs in key, label or cluster never becomes a member,
// and both logs say why, with the other's address.
func TestStrangers(t *testing.T) {
	for _, tt := range []struct {
		name        string
		here, there func(*Config, *Options)
		says, hears string // in the log of who was asked, and of who asks
	}{
		{"another key", func(c *Config, _ *Options) { c.Keys = []string{testKey(1)} }, func(c *Config, _ *Options) { c.Keys = []string{testKey(2)} }, "cause=key", "no common key"},
		{"no key", func(c *Config, _ *Options) { c.Keys = []string{testKey(1)} }, nil, "cause=plain", "this cluster has keys"},
		{"a key where none is", nil, func(c *Config, _ *Options) { c.Keys = []string{testKey(1)} }, "cause=sealed", "has no key"},
		{"another label", func(c *Config, _ *Options) { c.Label = "blue" }, func(c *Config, _ *Options) { c.Label = "green" }, "cause=label", "another label"},
		{"no label", func(c *Config, _ *Options) { c.Label = "blue" }, nil, "cause=label", "another label"},
		{"another cluster", func(_ *Config, o *Options) { o.Self.Cluster = "one" }, func(_ *Config, o *Options) { o.Self.Cluster = "two" }, "cause=cluster", "of cluster one"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var logs [2]logBook
			make := func(i int, id string, seeds []string, change func(*Config, *Options)) *Cluster {
				return startNode(t, newNode(t, id, func(c *Config, o *Options) {
					c.Seeds, o.Logger = seeds, logs[i].logger()
					if change != nil {
						change(c, o)
					}
				}))
			}
			a := make(0, "here", nil, tt.here)
			b := make(1, "there", []string{a.Addr().String()}, tt.there)
			eventually(t, "refusals in both logs", func() string {
				switch {
				case !strings.Contains(logs[0].String(), tt.says) || !strings.Contains(logs[0].String(), "peer="+b.Addr().Addr().String()):
					return "asked: " + logs[0].String()
				case !strings.Contains(logs[1].String(), tt.hears) || !strings.Contains(logs[1].String(), a.Addr().String()):
					return "asking: " + logs[1].String()
				}
				return ""
			})
			for _, c := range []*Cluster{a, b} {
				if n := len(c.Members()); n != 1 {
					t.Errorf("%s knows %d members, want itself alone", c.opt.ID, n)
				}
			}
		})
	}
}

// TestTwoClustersMeet: two whole clusters with swapped seeds stay two; a node
// without a cluster that knows both belongs to the one it adopts.
func TestTwoClustersMeet(t *testing.T) {
	inWorlds(t, 3, func(w *world) {
		of := func(i int) string { return []string{"one", "two"}[i%2] }
		for i := range 6 {
			c := w.make(i, func(_ *Config, o *Options) { o.Self.Cluster = of(i) })
			w.nodes = append(w.nodes, c)
			if err := c.Start(context.Background()); err != nil {
				w.t.Fatal(err)
			}
		}
		w.within(10*time.Second, "each of its own", complete(w.nodes, 3))
		newcomer := w.make(6, nil)
		if err := newcomer.Start(context.Background()); err != nil {
			w.t.Fatal(err)
		}
		w.nodes = append(w.nodes, newcomer)
		w.within(10*time.Second, "the newcomer sees both", complete(w.nodes[6:], 7))
		newcomer.Update(func(m *Meta) { m.Cluster = "two" })
		w.within(30*time.Second, "the newcomer is of two", func() string {
			return complete([]*Cluster{w.nodes[1], w.nodes[3], w.nodes[5], newcomer}, 4)()
		})
		w.within(60*time.Second, "and not of one", complete([]*Cluster{w.nodes[0], w.nodes[2], w.nodes[4]}, 3))
		<-time.After(2 * time.Minute)
		if why := complete([]*Cluster{w.nodes[0], w.nodes[2], w.nodes[4]}, 3)(); why != "" {
			w.t.Error(why)
		}
	})
}

func TestRotation(t *testing.T) {
	ctx := context.Background()
	dirs := []string{t.TempDir(), t.TempDir(), t.TempDir()}
	configure := func(i int, c *Config, o *Options) { c.Keys, o.Dir = []string{testKey(1)}, dirs[i] }
	nodes := startNodes(t, 3, configure)
	eventually(t, "membership", complete(nodes, 3))
	next, err := ParseKey(testKey(2))
	if err != nil {
		t.Fatal(err)
	}
	old, _ := ParseKey(testKey(1))
	order := func(what KeyOrder, key []byte, marks ...string) {
		t.Helper()
		answers, err := nodes[1].Keys(ctx, what, key)
		if err != nil || len(answers) != 3 {
			t.Fatalf("%s: %d answers, %v", what, len(answers), err)
		}
		for _, a := range answers {
			if a.Err != "" || !slices.Equal(a.Marks, marks) {
				t.Errorf("%s: node %s: %q, keys %v, want %v", what, a.ID, a.Err, a.Marks, marks)
			}
		}
	}
	one, two := mark(old), mark(next)
	order(KeyList, nil, one)
	if _, err := nodes[0].Keys(ctx, KeyUse, next); err == nil || !strings.Contains(err.Error(), "install it") {
		t.Errorf("a key that is nowhere was used: %v", err)
	}
	order(KeyInstall, next, one, two)
	if _, err := nodes[0].Keys(ctx, KeyRemove, old); err == nil || !strings.Contains(err.Error(), "encrypts") {
		t.Errorf("the key in use was removed: %v", err)
	}
	order(KeyUse, next, two, one)
	order(KeyRemove, old, two)
	first := nodes[2].Boot()
	crash(nodes[2])
	again := startNode(t, newNode(t, "n2", func(c *Config, o *Options) {
		configure(2, c, o)
		c.Seeds = []string{nodes[0].Addr().String()}
	}))
	eventually(t, "the restarted node has kept the keys", complete([]*Cluster{nodes[0], nodes[1], again}, 3))
	if m := again.keys.marks(); !slices.Equal(m, []string{two}) {
		t.Errorf("after the restart it has %v, want %v", m, two)
	}
	if again.Boot() <= first {
		t.Errorf("starts are numbered %d, %d", first, again.Boot())
	}
}

// TestOldOrders: an order that was recorded does nothing again, nor one for
// another start, nor one from no member.
func TestOldOrders(t *testing.T) {
	nodes := startNodes(t, 2, func(_ int, c *Config, _ *Options) { c.Keys = []string{testKey(1)} })
	eventually(t, "membership", complete(nodes, 2))
	a, b := nodes[0], nodes[1]
	good := order{what: KeyInstall, forBoot: a.boot, from: "n1", boot: b.boot, seq: 7, key: bytes.Repeat([]byte{9}, 32)}
	for _, tt := range []struct {
		name   string
		change func(*order)
		done   bool
	}{
		{"of no member", func(o *order) { o.from = "n9" }, false},
		{"of another start of its sender", func(o *order) { o.boot++ }, false},
		{"for another start of its receiver", func(o *order) { o.forBoot++ }, false},
		{"the first", func(*order) {}, true},
		{"the same again", func(*order) {}, false},
		{"an earlier one", func(o *order) { o.seq = 6 }, false},
		{"the next", func(o *order) { o.seq = 8 }, true},
	} {
		o := good
		tt.change(&o)
		var got KeyAnswer
		if err := got.decode(a.onKeys(o.encode())); err != nil {
			t.Fatal(err)
		}
		if (got.Err == "") != tt.done {
			t.Errorf("%s: %q, done should be %v", tt.name, got.Err, tt.done)
		}
	}
	if _, err := newNode(t, "early", nil).Keys(context.Background(), KeyList, nil); err == nil {
		t.Error("a node that has not started gave a list of keys")
	}
	open := startNode(t, newNode(t, "open", nil))
	if _, err := open.Keys(context.Background(), KeyList, nil); err == nil {
		t.Error("a cluster without keys gave a list of them")
	}
}

func TestConfig(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*Config)
		key    string // the one at fault; empty: none
	}{
		{"default", func(*Config) {}, ""},
		{"outside without keys", func(c *Config) { c.Bind = "0.0.0.0:7946" }, "gossip_keys"},
		{"a name may be outside", func(c *Config) { c.Bind = "lb-1:7946" }, "gossip_keys"},
		{"outside, insecure", func(c *Config) { c.Bind, c.Insecure = "10.0.0.1:7946", true }, ""},
		{"outside with keys", func(c *Config) { c.Bind, c.Keys = "10.0.0.1:7946", []string{testKey(1)} }, ""},
		{"short key", func(c *Config) { c.Keys = []string{"YWJj"} }, "gossip_keys"},
		{"no base64", func(c *Config) { c.Keys = []string{"%%"} }, "gossip_keys"},
		{"both", func(c *Config) { c.Keys, c.KeysFile = []string{testKey(1)}, "x" }, "gossip_keys_file"},
		{"no file", func(c *Config) { c.KeysFile = "/nonexistent/keys" }, "gossip_keys_file"},
		{"bad seed", func(c *Config) { c.Seeds = []string{"a:1", "b"} }, "seeds[1]"},
		{"seed without port", func(c *Config) { c.Seeds = []string{"a:0"} }, "seeds[0]"},
		{"bad bind", func(c *Config) { c.Bind = "here" }, "bind"},
		{"long label", func(c *Config) { c.Label = strings.Repeat("x", 64) }, "label"},
		{"blank in label", func(c *Config) { c.Label = "a b" }, "label"},
		{"port in advertise", func(c *Config) { c.Advertise = "10.0.0.1:7946" }, "advertise"},
	} {
		c := DefaultConfig()
		tt.change(&c)
		var keys []string
		c.Validate(func(key, format string, _ ...any) { keys = append(keys, key) })
		if tt.key == "" && keys != nil || tt.key != "" && !slices.Contains(keys, tt.key) {
			t.Errorf("%s: faults at %v, want %q", tt.name, keys, tt.key)
		}
	}
}

// TestSeeds: started in any order with one another as seeds nodes find each
// other, and a typing error in one seed stops nothing.
func TestSeeds(t *testing.T) {
	inWorlds(t, 3, func(w *world) {
		var book logBook
		for _, i := range []int{2, 0, 1} {
			c := w.make(i, func(c *Config, o *Options) {
				c.Seeds = append([]string{"n0.typo:7946"}, c.Seeds...)
				if i == 2 {
					o.Logger = book.logger()
				}
			})
			if err := c.Start(context.Background()); err != nil {
				w.t.Fatal(err)
			}
			w.nodes = append(w.nodes, c)
			<-time.After(7 * time.Second)
		}
		w.within(10*time.Second, "they find each other", complete(w.nodes, 3))
		if !strings.Contains(book.String(), `"seed has a name that nobody knows; look for a typing error`) || !strings.Contains(book.String(), "n0.typo:7946") {
			w.t.Errorf("the typing error is not reported: %s", book.String())
		}
	})
}

// TestRestartWithoutSeeds: whom a node knew is enough to come back, also at
// another address.
func TestRestartWithoutSeeds(t *testing.T) {
	t.Parallel() // it waits, mostly
	dir := t.TempDir()
	nodes := startNodes(t, 3, func(i int, _ *Config, o *Options) {
		if i == 2 {
			o.Dir = dir
		}
	})
	eventually(t, "membership", complete(nodes, 3))
	eventually(t, "the file of whom it knows", func() string {
		if known, err := loadKnown(dir); err != nil || len(known) != 2 {
			return "not both are in it"
		}
		return ""
	})
	if err := nodes[2].Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	again := startNode(t, newNode(t, "n2", func(_ *Config, o *Options) { o.Dir = dir }))
	eventually(t, "it is back", complete([]*Cluster{nodes[0], nodes[1], again}, 3))
	for _, m := range nodes[0].Members() {
		if m.ID == "n2" && (m.Address != again.Addr() || m.Meta.Boot != again.Boot() || again.Boot() <= nodes[2].Boot()) {
			t.Errorf("n2 is known at %v, start %d; it is at %v, start %d after %d", m.Address, m.Meta.Boot, again.Addr(), again.Boot(), nodes[2].Boot())
		}
	}
}

// TestMovedAfterCrash: a node that died and comes back elsewhere keeps its id.
func TestMovedAfterCrash(t *testing.T) {
	inWorlds(t, 3, func(w *world) {
		w.start(3)
		w.within(5*time.Second, "membership", complete(w.nodes, 3))
		crash(w.nodes[2])
		w.nodes[2] = w.make(2, func(c *Config, o *Options) {
			at := netip.MustParseAddrPort("127.1.9.9:7000")
			c.Bind = at.String()
			host{w.net, at.Addr()}.use(o)
		})
		if err := w.nodes[2].Start(context.Background()); err != nil {
			w.t.Fatal(err)
		}
		took := w.within(40*time.Second, "it is back elsewhere", func() string {
			for _, c := range w.nodes[:2] {
				for _, m := range c.Members() {
					if m.ID == "n2" && m.Address != w.nodes[2].Addr() {
						return fmt.Sprintf("%s knows it at %v", c.opt.ID, m.Address)
					}
				}
			}
			return complete(w.nodes, 3)()
		})
		w.t.Logf("back after %v", took)
	})
}

// TestSeedNames: names are looked up at every try; of several addresses the IPv4
// ones are asked first, and our own is not.
func TestSeedNames(t *testing.T) {
	inWorlds(t, 2, func(w *world) {
		w.start(1)
		var mu sync.Mutex
		var found []netip.Addr
		looked := 0
		c := w.make(5, func(cfg *Config, o *Options) {
			cfg.Seeds = []string{"lb.internal:7946"}
			o.Resolve = func(_ context.Context, name string) ([]netip.Addr, error) {
				mu.Lock()
				defer mu.Unlock()
				looked++
				if found == nil {
					return nil, &net.DNSError{Err: "server misbehaving", Name: name, IsTemporary: true}
				}
				return slices.Clone(found), nil
			}
		})
		if err := c.Start(context.Background()); err != nil {
			w.t.Fatal(err)
		}
		w.nodes = append(w.nodes, c)
		<-time.After(20 * time.Second)
		mu.Lock()
		if looked < 4 {
			w.t.Errorf("the name was looked up %d times in 20 s", looked)
		}
		found = []netip.Addr{netip.MustParseAddr("fd00::1"), w.addr(5).Addr(), netip.MustParseAddr("::ffff:" + w.addr(0).Addr().String())}
		mu.Unlock()
		got, err := c.resolve(context.Background(), "lb.internal")
		if want := []netip.Addr{w.addr(5).Addr(), w.addr(0).Addr(), netip.MustParseAddr("fd00::1")}; err != nil || !slices.Equal(got, want) {
			w.t.Errorf("found %v, %v, want %v", got, err, want)
		}
		w.within(10*time.Second, "it joins once the name is known", complete(w.nodes, 2))
	})
}
