package gossip

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"
)

// door is a connection of which only its address and its end matter.
type door struct {
	net.Conn
	from string
}

func (d *door) RemoteAddr() net.Addr { return tcpAddr(d.from) }

func TestLobby(t *testing.T) {
	enter := func(l *lobby, host string) (*guest, net.Conn) { return l.enter(&door{from: host + ":1"}) }
	fill := func(l *lobby, host string, n int, known bool) (all []*guest) {
		for range n {
			g, out := enter(l, host)
			if g == nil || out != nil {
				t.Fatalf("no place for %s at %d", host, l.len())
			}
			g.known = known
			all = append(all, g)
		}
		return all
	}
	for _, tt := range []struct {
		name  string
		fill  func(l *lobby) []*guest
		comes string
		out   int // of those that fill; -1: nobody, -2: the newcomer
	}{
		{"room", func(l *lobby) []*guest { return fill(l, "10.0.0.1", 3, false) }, "10.0.0.2", -1},
		{"one address has its share", func(l *lobby) []*guest { return fill(l, "10.0.0.1", maxPerHost, false) }, "10.0.0.1", 0},
		{"and others come", func(l *lobby) []*guest { return fill(l, "10.0.0.1", maxPerHost, false) }, "10.0.0.2", -1},
		{"members have their address's share", func(l *lobby) []*guest { return fill(l, "10.0.0.1", maxPerHost, true) }, "10.0.0.1", -2},
		{"full: the busiest address gives way", func(l *lobby) []*guest {
			return slices.Concat(fill(l, "10.0.0.1", 20, false), fill(l, "10.0.0.2", 24, false), fill(l, "10.0.0.3", 20, false))
		}, "10.0.0.4", 20},
		{"full: not members of a busier one", func(l *lobby) []*guest {
			return slices.Concat(fill(l, "10.0.0.1", 31, true), fill(l, "10.0.0.2", 31, true), fill(l, "10.0.0.3", 2, false))
		}, "10.0.0.4", 62},
		{"full of members", func(l *lobby) []*guest {
			return slices.Concat(fill(l, "10.0.0.1", 32, true), fill(l, "10.0.0.2", 32, true))
		}, "10.0.0.4", -2},
	} {
		l := &lobby{}
		all := tt.fill(l)
		g, out := enter(l, tt.comes)
		switch {
		case tt.out == -2 && (g != nil || out == nil),
			tt.out == -1 && (g == nil || out != nil),
			tt.out >= 0 && (g == nil || out != all[tt.out].conn):
			t.Errorf("%s: guest %v, out %v", tt.name, g, out)
		}
		if l.len() > maxStreams {
			t.Errorf("%s: %d places are taken", tt.name, l.len())
		}
		for _, old := range append(all, g) {
			if old != nil {
				l.leave(old)
				l.leave(old)
			}
		}
		if l.len() != 0 {
			t.Errorf("%s: %d places are taken for ever", tt.name, l.len())
		}
	}
}

func TestHostOf(t *testing.T) {
	for at, want := range map[string]string{
		"10.0.0.1:7946": "10.0.0.1", "[::ffff:10.0.0.1]:7": "10.0.0.1", "[::1]:9": "::1",
		"[2001:db8:1:2:3:4:5:6]:7": "2001:db8:1:2::/64", "[2001:db8:1:2::9]:8": "2001:db8:1:2::/64", "[fe80::1%eth0]:7": "fe80::/64",
	} {
		if got := hostOf(tcpAddr(at)); got != want {
			t.Errorf("%s is of %s, want %s", at, got, want)
		}
	}
	if got := hostOf(&net.UnixAddr{Name: "pipe", Net: "unix"}); got != "pipe" {
		t.Errorf("a pipe is of %s", got)
	}
}

// TestSilentStrangers: two hosts that hold all the streams they can get, and open
// new ones all the time, keep nobody from joining.
func TestSilentStrangers(t *testing.T) {
	inWorlds(t, 2, func(w *world) {
		w.start(2)
		w.within(5*time.Second, "membership", complete(w.nodes, 2))
		ctx, done := context.WithCancel(context.Background())
		for s := range 2 {
			at := host{w.net, netip.AddrFrom4([4]byte{127, 2, 0, byte(s)})}
			go func() {
				for {
					for i := range 2 {
						if conn, err := at.dial(context.Background(), "tcp", w.addr(i).String()); err == nil {
							context.AfterFunc(ctx, func() { conn.Close() })
							go io.Copy(io.Discard, conn) // until it is put out
						}
					}
					select {
					case <-time.After(5 * time.Millisecond):
					case <-ctx.Done():
						return
					}
				}
			}()
		}
		<-time.After(3 * time.Second)
		if n := w.nodes[0].net.lobby.len(); n < maxPerHost {
			w.t.Errorf("strangers hold %d streams: not enough to matter", n)
		}
		late := w.make(2, nil)
		if err := late.Start(context.Background()); err != nil {
			w.t.Fatal(err)
		}
		w.nodes = append(w.nodes, late)
		took := w.within(2*time.Second, "somebody joins", complete(w.nodes, 3))
		w.t.Logf("joined in %v", took)
		done()
	})
}

// TestHardStop: who stops while it waits for a seed that says nothing does not
// wait until that has cost what it may.
func TestHardStop(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	accepted := make(chan net.Conn, 64)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				close(accepted)
				return
			}
			accepted <- c
		}
	}()
	c := startNode(t, newNode(t, "n0", func(cfg *Config, _ *Options) { cfg.Seeds = []string{l.Addr().String()} }))
	asked := <-accepted
	if _, err := io.ReadFull(asked, make([]byte, 6)); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	crash(c)
	if took := time.Since(start); took > 2500*time.Millisecond { // it would wait for 5 s
		t.Errorf("the stop took %v", took)
	}
	asked.Close()
	l.Close()
	for c := range accepted {
		c.Close()
	}
}

// TestRotationWhileNodesCome: keys are rotated as an operator does it, who asks
// again until nobody objects, while nodes come and go. All end with the new key,
// and nobody is lost.
func TestRotationWhileNodesCome(t *testing.T) {
	inWorlds(t, 2, func(w *world) {
		dirs := map[int]string{}
		start := func(i int, keys ...string) {
			if dirs[i] == "" {
				dirs[i] = w.t.TempDir()
			}
			c := w.make(i, func(cfg *Config, o *Options) { cfg.Keys, o.Dir = keys, dirs[i] })
			if err := c.Start(context.Background()); err != nil {
				w.t.Fatal(err)
			}
			if i < len(w.nodes) {
				w.nodes[i] = c
			} else {
				w.nodes = append(w.nodes, c)
			}
		}
		for i := range 5 {
			start(i, testKey(1))
		}
		w.within(5*time.Second, "membership", complete(w.nodes, 5))
		first, churn := w.nodes[0], make(chan struct{})
		go func() {
			defer close(churn)
			for i := 5; i < 11; i++ {
				<-time.After(700 * time.Millisecond)
				start(i, testKey(1), testKey(2)) // the operator has put both into the configuration by now
				crash(w.nodes[4])
				<-time.After(300 * time.Millisecond)
				start(4, testKey(1))
			}
		}()
		old, _ := ParseKey(testKey(1))
		next, _ := ParseKey(testKey(2))
		order := func(what KeyOrder, key []byte) {
			w.within(2*time.Minute, string(what), func() string {
				answers, err := first.Keys(context.Background(), what, key)
				if err != nil {
					return err.Error()
				}
				for _, a := range answers {
					if a.Err != "" {
						return a.ID + ": " + a.Err
					}
				}
				return ""
			})
		}
		order(KeyInstall, next)
		<-churn
		w.within(30*time.Second, "all are there", complete(w.nodes, 11))
		order(KeyInstall, next)
		order(KeyUse, next)
		order(KeyRemove, old)
		w.within(10*time.Second, "all are still there", complete(w.nodes, 11))
		for _, c := range w.nodes {
			if got := c.keys.marks(); !slices.Equal(got, []string{mark(next)}) {
				w.t.Errorf("%s has %v", c.opt.ID, got)
			}
		}
		<-time.After(30 * time.Second)
		if why := complete(w.nodes, 11)(); why != "" {
			w.t.Error(fmt.Sprint("later: ", why))
		}
	})
}
