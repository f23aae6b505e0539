package gossip

import (
	"context"
	"fmt"
	"net/netip"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

// world is a cluster in virtual time. Nothing in it is slow, so times are
// exact up to the library's own randomness; each test runs several times.
type world struct {
	t     *testing.T
	net   *fakeNet
	nodes []*Cluster
}

// bubble runs do in virtual time. Under the race detector it does so on one processor:
// go1.26 runs the timers of one bubble on several at once, all of them as one of the
// detector's threads, and that breaks it (SIGSEGV, or "CHECK failed: tsan_rtl.cpp").
func bubble(t *testing.T, do func(t *testing.T)) {
	if raceFactor > 1 {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	}
	synctest.Test(t, do)
}

func inWorlds(t *testing.T, times int, do func(w *world)) {
	for i := range times {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := &world{t: t, net: newFakeNet()}
				defer w.end()
				do(w)
			})
		})
	}
}

func (w *world) end() {
	for _, c := range w.nodes {
		crash(c)
	}
	<-time.After(time.Minute) // the library's last timers
}

func (w *world) addr(i int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 1, byte(i >> 8), byte(i + 1)}), 7946)
}

// make makes node number i, with the first three as seeds.
func (w *world) make(i int, change func(*Config, *Options)) *Cluster {
	return newNode(w.t, fmt.Sprintf("n%d", i), func(cfg *Config, opt *Options) {
		cfg.Bind = w.addr(i).String()
		for s := range 3 {
			cfg.Seeds = append(cfg.Seeds, w.addr(s).String())
		}
		host{w.net, w.addr(i).Addr()}.use(opt)
		if change != nil {
			change(cfg, opt)
		}
	})
}

func (w *world) start(n int) {
	for i := range n {
		c := w.make(i, nil)
		w.nodes = append(w.nodes, c)
		if err := c.Start(context.Background()); err != nil {
			w.t.Fatal(err)
		}
	}
}

// within lets virtual time pass until ok says "", and fails after a limit.
func (w *world) within(limit time.Duration, what string, ok func() string) time.Duration {
	w.t.Helper()
	start := time.Now()
	for {
		why := ok()
		if why == "" {
			return time.Since(start)
		}
		if time.Since(start) > limit {
			w.t.Fatalf("%s: not within %v: %s", what, limit, why)
		}
		<-time.After(10 * time.Millisecond)
	}
}

func TestMassLeave(t *testing.T) {
	inWorlds(t, 3, func(w *world) {
		w.start(24)
		w.within(5*time.Second, "membership", complete(w.nodes, 24))
		done := make(chan error, 16)
		for _, c := range w.nodes[8:] {
			go func() { done <- c.Stop(context.Background()) }()
		}
		for range 16 {
			if err := <-done; err != nil {
				w.t.Error(err)
			}
		}
		w.within(5*time.Second, "16 of 24 left", complete(w.nodes[:8], 8))
	})
}

func TestFlapping(t *testing.T) {
	inWorlds(t, 5, func(w *world) {
		w.start(5)
		w.within(5*time.Second, "membership", complete(w.nodes, 5))
		for range 6 {
			crash(w.nodes[4])
			<-time.After(1500 * time.Millisecond)
			w.nodes[4] = w.make(4, nil)
			if err := w.nodes[4].Start(context.Background()); err != nil {
				w.t.Fatal(err)
			}
			<-time.After(1500 * time.Millisecond)
		}
		w.within(15*time.Second, "the flapping node is back for good", complete(w.nodes, 5))
	})
}

// TestSplit: 5 nodes, 3|2 for a minute; both sides go on, and are one again
// soon after, by themselves.
func TestSplit(t *testing.T) {
	inWorlds(t, 10, func(w *world) {
		w.start(5)
		w.within(5*time.Second, "membership", complete(w.nodes, 5))
		side := func(a netip.Addr) bool { return a.As4()[3] > 3 }
		w.net.set(func(from, to netip.Addr, _ string) bool { return side(from) != side(to) })
		w.within(20*time.Second, "the split is seen by the many", complete(w.nodes[:3], 3))
		w.within(20*time.Second, "the split is seen by the few", complete(w.nodes[3:], 2))
		<-time.After(time.Minute)
		w.net.set(nil)
		took := w.within(10*time.Second, "one membership again", complete(w.nodes, 5))
		w.t.Logf("healed after %v", took)
	})
}

// TestOneWay: what a node sends is lost, what is sent to it arrives.
func TestOneWay(t *testing.T) {
	inWorlds(t, 5, func(w *world) {
		w.start(5)
		w.within(5*time.Second, "membership", complete(w.nodes, 5))
		mute := w.addr(4).Addr()
		w.net.set(func(from, _ netip.Addr, _ string) bool { return from == mute })
		w.within(20*time.Second, "the mute node is out", complete(w.nodes[:4], 4))
		<-time.After(30 * time.Second)
		w.net.set(nil)
		w.within(10*time.Second, "it is back", complete(w.nodes, 5))
	})
}

// TestOnlyTCP: where UDP is lost between two sides, nobody is taken for dead,
// and it is seen.
func TestOnlyTCP(t *testing.T) {
	inWorlds(t, 3, func(w *world) {
		w.start(2)
		w.within(5*time.Second, "membership", complete(w.nodes, 2))
		w.net.set(func(_, _ netip.Addr, protocol string) bool { return protocol == "udp" })
		for _, c := range w.nodes {
			w.within(20*time.Second, "the loss is seen", func() string {
				for _, m := range c.Members() {
					if !m.Self && m.UDPLost {
						return ""
					}
				}
				return "no member is marked"
			})
		}
		<-time.After(time.Minute)
		if why := complete(w.nodes, 2)(); why != "" {
			w.t.Error(why)
		}
		w.net.set(nil)
		w.within(30*time.Second, "the mark is gone", func() string {
			for _, m := range w.nodes[0].Members() {
				if m.UDPLost {
					return "still marked"
				}
			}
			return ""
		})
	})
}
