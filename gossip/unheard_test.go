package gossip

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"
)

// TestUnheard: which seeds count as silent, by what their names stand for. Node 0 is
// there; node 5 asks.
func TestUnheard(t *testing.T) {
	for what, c := range map[string]struct {
		seed   string
		stands []string // for the name
		silent bool
	}{
		"itself":                              {"127.1.0.6:7946", nil, false},
		"one that is there":                   {"127.1.0.1:7946", nil, false},
		"one that is not":                     {"127.1.0.9:7946", nil, true},
		"a name that nobody knows":            {"lb:7946", nil, true},
		"its own name":                        {"lb:7946", []string{"127.1.0.6"}, false},
		"its own name, ::1 too":               {"lb:7946", []string{"127.1.0.6", "::1"}, false},
		"its own name, 127.0.1.1 too":         {"lb:7946", []string{"127.0.1.1", "127.1.0.6"}, false},
		"a loopback address that is not its":  {"lb:7946", []string{"::1"}, true},
		"itself and one that is there":        {"lb:7946", []string{"127.1.0.6", "127.1.0.1"}, false},
		"itself and one elsewhere, silent":    {"lb:7946", []string{"127.1.0.6", "::1", "fd00::9"}, true},
		"one that is there, and a silent one": {"lb:7946", []string{"127.1.0.1", "fd00::9"}, false},
	} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := &world{t: t, net: newFakeNet()}
				defer w.end()
				w.start(1)
				n := w.make(5, func(cfg *Config, o *Options) {
					cfg.Seeds = []string{c.seed}
					o.Resolve = func(_ context.Context, name string) (all []netip.Addr, err error) {
						for _, a := range c.stands {
							all = append(all, netip.MustParseAddr(a))
						}
						if all == nil {
							err = &net.DNSError{Err: "no such host", Name: name, IsNotFound: true}
						}
						return all, err
					}
				})
				if got := n.Unheard(); !slices.Equal(got, []string{c.seed}) {
					t.Errorf("before it has asked, %v are unheard", got)
				}
				if err := n.Start(context.Background()); err != nil {
					t.Fatal(err)
				}
				w.nodes = append(w.nodes, n)
				<-time.After(3 * time.Second)
				if got := n.Unheard(); len(got) > 0 != c.silent {
					t.Errorf("unheard are %v", got)
				}
			})
		})
	}
}

// TestUnheardBehindASplit: a seed that has answered counts as silent from the moment
// that its node is lost, and not only once it was asked again: both sides of a split
// might found a cluster in between. It is heard again whoever of the two came back
// to the other.
func TestUnheardBehindASplit(t *testing.T) {
	inWorlds(t, 4, func(w *world) {
		w.start(1)
		n := w.make(5, func(cfg *Config, _ *Options) { cfg.Seeds = cfg.Seeds[:1] })
		if err := n.Start(context.Background()); err != nil {
			w.t.Fatal(err)
		}
		w.nodes = append(w.nodes, n)
		heard := func() string {
			if n.alive() < 2 || len(n.Unheard()) > 0 {
				return "it is not"
			}
			return ""
		}
		w.within(10*time.Second, "the seed is heard", heard)
		<-time.After(20 * time.Second)
		w.net.set(func(from, to netip.Addr, _ string) bool { return from != to })
		w.within(20*time.Second, "it is lost", func() string {
			if n.alive() == 2 {
				return "it is there"
			}
			return ""
		})
		for range 3000 {
			if len(n.Unheard()) == 0 {
				w.t.Fatal("a seed that is lost counts as heard")
			}
			<-time.After(10 * time.Millisecond)
		}
		w.net.set(nil)
		w.within(30*time.Second, "it is heard again", heard)
	})
}

// TestOwnAddresses: loopback and the host's interfaces, and nobody else's.
func TestOwnAddresses(t *testing.T) {
	own := []string{"127.0.0.1", "127.0.1.1", "::1"}
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		own = append(own, a.(*net.IPNet).IP.String())
	}
	for _, a := range own {
		if !ofThisHost(netip.MustParseAddr(a)) {
			t.Errorf("%s is taken for another host's", a)
		}
	}
	for _, a := range []string{"192.0.2.1", "2001:db8::1"} {
		if ofThisHost(netip.MustParseAddr(a)) {
			t.Errorf("%s is taken for this host's", a)
		}
	}
}
