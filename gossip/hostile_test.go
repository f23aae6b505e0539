package gossip

import (
	"bytes"
	"compress/lzw"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"
)

// packMap writes what memberlist's encoder would.
func packMap(entries ...any) []byte {
	b := []byte{0x80 | byte(len(entries)/2)}
	for _, e := range entries {
		switch e := e.(type) {
		case string:
			b = append(append(b, 0xda, byte(len(e)>>8), byte(len(e))), e...)
		case []byte:
			b = append(append(b, 0xda, byte(len(e)>>8), byte(len(e))), e...)
		case int:
			b = binary.BigEndian.AppendUint64(append(b, 0xcf), uint64(e))
		case nil:
			b = append(b, 0xc0)
		}
	}
	return b
}

func aliveOf(node string, meta []byte) []byte {
	return append([]byte{msgAlive}, packMap("Node", node, "Addr", []byte{127, 0, 0, 1}, "Port", 1, "Meta", meta, "Incarnation", 1, "Vsn", []byte{1, 5, 2, 0, 0, 0})...)
}

// bomb is a compressed message that unpacks to many times its size.
func bomb(size int) []byte {
	var packed bytes.Buffer
	w := lzw.NewWriter(&packed, lzw.LSB, 8)
	_, _ = io.Copy(w, io.LimitReader(zeros{}, int64(size)))
	_ = w.Close()
	return append([]byte{msgCompressed}, packMap("Algo", 0, "Buf", packed.Bytes()[:min(packed.Len(), 1<<16-1)])...)
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

func compound(parts ...[]byte) []byte {
	b := []byte{msgCompound, byte(len(parts))}
	for _, p := range parts {
		b = binary.BigEndian.AppendUint16(b, uint16(len(p)))
	}
	return append(b, bytes.Join(parts, nil)...)
}

func exchangeOf(nodes int, claimed int, ours int, tail []byte, entries ...[]byte) []byte {
	b := append([]byte{msgPushPull}, packMap("Nodes", claimed, "UserStateLen", ours, "Join", 1)...)
	b = append(b, bytes.Join(entries, nil)...)
	return append(b, tail...)
}

func TestGuard(t *testing.T) {
	state := packMap("Name", "n9", "Addr", []byte{127, 0, 0, 1}, "Port", 1, "Meta", []byte{}, "Incarnation", 1, "State", 0, "Vsn", []byte{1, 5, 2, 0, 0, 0})
	short := packMap("Name", "n9", "Addr", []byte{127, 0, 0, 1}, "Port", 1, "Meta", []byte{}, "Incarnation", 1, "State", 0, "Vsn", []byte{1, 5, 2})
	none := packMap("Name", "n9", "Addr", []byte{127, 0, 0, 1}, "Port", 1, "Meta", []byte{}, "Incarnation", 1, "State", 0, "Vsn", nil)
	good := aliveOf("n9", nil)
	for _, tt := range []struct {
		name   string
		stream bool
		b      []byte
		want   cause // 0: passes
	}{
		{"alive", false, good, 0},
		{"two in a compound", false, compound(good, append([]byte{msgPing}, packMap("SeqNo", 1, "Node", "n9")...)), 0},
		{"ours in a compound", false, compound(good, []byte{msgUser, 1, 2, 3}), 0},
		{"nothing", false, nil, causeBroken},
		{"a bomb", false, bomb(1 << 20), causeCompressed},
		{"a bomb in a compound", false, compound(good, bomb(1<<20)), causeCompressed},
		{"a compound in a compound", false, compound(compound(good)), causeBroken},
		{"encrypted within", false, []byte{msgEncrypted, 1, 2, 3}, causeBroken},
		{"a cut compound", false, compound(good)[:20], causeBroken},
		{"a compound with more than it says", false, append(compound(good), 1), causeBroken},
		{"a wrong checksum", false, append([]byte{msgCRC, 0, 0, 0, 0}, good...), causeBroken},
		{"short versions", false, append([]byte{msgAlive}, packMap("Node", "n9", "Vsn", []byte{1})...), causeBroken},
		{"no versions", false, append([]byte{msgAlive}, packMap("Node", "n9")...), causeBroken},
		{"an odd address", false, append([]byte{msgPing}, packMap("Node", "n9", "SourceAddr", []byte{1, 2, 3})...), causeBroken},
		{"a field twice", false, append([]byte{msgPing}, packMap("Node", "n9", "Node", "n8")...), causeBroken},
		{"an unknown field", false, append([]byte{msgPing}, packMap("Nodes", "n9")...), causeBroken},
		{"a nested list", false, []byte{msgPing, 0x81, 0xa4, 'N', 'o', 'd', 'e', 0x91, 0x91, 0x91}, causeBroken},
		{"a long claim", false, []byte{msgPing, 0x81, 0xa4, 'N', 'o', 'd', 'e', 0xdb, 0xff, 0xff, 0xff, 0xff}, causeBroken},
		{"an exchange", true, exchangeOf(1, 1, 2, []byte("xy"), state), 0},
		{"an exchange by packet", false, exchangeOf(1, 1, 0, nil, state), causeBroken},
		{"an exchange with short versions", true, exchangeOf(1, 1, 0, nil, short), causeBroken},
		{"an exchange without versions", true, exchangeOf(1, 1, 0, nil, none), causeBroken},
		{"an exchange that claims more nodes", true, exchangeOf(1, 2, 0, nil, state), causeBroken},
		{"an exchange that claims a million", true, exchangeOf(0, 1<<20, 0, nil), causeSize},
		{"an exchange that claims bytes of ours", true, exchangeOf(0, 0, 20<<20, nil), causeBroken},
		{"a user message", true, append([]byte{msgUser}, packMap("UserMsgLen", 1<<40)...), causeBroken},
		{"a bomb by stream", true, bomb(1 << 20), causeCompressed},
	} {
		var err error
		if tt.stream {
			err = guard{}.stream(tt.b)
		} else {
			err = guard{}.packet(tt.b)
		}
		if got := causeOf(err); err == nil && tt.want != 0 || err != nil && got != tt.want {
			t.Errorf("%s: %v, want cause %d", tt.name, err, tt.want)
		}
	}
}

// TestGuardKnowsMemberlist: nothing that real members say to each other is
// refused.
func TestGuardKnowsMemberlist(t *testing.T) {
	inWorlds(t, 2, func(w *world) {
		w.start(8)
		w.within(5*time.Second, "membership", complete(w.nodes, 8))
		crash(w.nodes[7])
		w.net.set(func(from, to netip.Addr, protocol string) bool { return protocol == "udp" && rand.IntN(5) == 0 })
		<-time.After(3 * time.Minute)
		for _, c := range w.nodes {
			for i := range c.count.refused {
				if n := c.count.refused[i].Load(); n > 0 && cause(i) != causeStranger { // of one that died, or has just come
					w.t.Errorf("%s refused %d messages: %s", c.opt.ID, n, cause(i).name())
				}
			}
		}
	})
}

// TestFlood: garbage, bombs and replays on the port of a closed and of an open
// node change nothing, and cost nothing that stays.
func TestFlood(t *testing.T) {
	for _, key := range []string{"", testKey(1)} {
		t.Run(fmt.Sprintf("keyed %v", key != ""), func(t *testing.T) {
			nodes := startNodes(t, 3, func(_ int, c *Config, _ *Options) {
				if key != "" {
					c.Keys = []string{key}
				}
			})
			eventually(t, "membership", complete(nodes, 3))
			target := nodes[0]
			before := heap()
			flood(t, target, floodPackets(target, 150))
			floodStreams(t, target)
			if after := heap(); after > before+16<<20 {
				t.Errorf("the heap grew from %d to %d bytes", before, after)
			}
			if why := complete(nodes, 3)(); why != "" {
				t.Error(why)
			}
			if got := stateOf(target, "n9"); key != "" && got != "unknown" {
				t.Errorf("a stranger is %s", got)
			}
		})
	}
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// floodPackets are rounds of everything bad that a packet can be.
func floodPackets(target *Cluster, rounds int) [][]byte {
	other, err := newKeyring([][]byte{bytes.Repeat([]byte{7}, 32)}, nil)
	if err != nil {
		panic(err)
	}
	small := bomb(1 << 20)
	var out [][]byte
	for range rounds {
		noise := make([]byte, rand.IntN(1400))
		for i := range noise {
			noise[i] = byte(rand.Uint32())
		}
		out = append(out, noise, nil,
			append([]byte{frameVersion | byte(kindList), 0}, noise...),
			codec{other, ""}.packet(kindList, aliveOf("n9", nil)),
			target.net.codec.packet(kindList, noise),
			target.net.codec.packet(kindReport, noise),
			target.net.codec.packet(kindList, small),
			target.net.codec.packet(kindList, compound(small)),
			target.net.codec.packet(kindList, append([]byte{msgAlive}, packMap("Node", "n1", "Vsn", []byte{1})...)),
			target.net.codec.packet(kindList, append([]byte{msgDead}, packMap("Node", "n1", "Incarnation", 0, "From", "n2")...)))
	}
	return out
}

func flood(t *testing.T, target *Cluster, packets [][]byte) {
	t.Helper()
	conn, err := net.Dial("udp", target.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	start := target.count.packetsIn.Load()
	for i, p := range packets {
		if _, err := conn.Write(p); err != nil {
			t.Fatal(err)
		}
		if i%64 == 63 { // as much as a socket holds: what the kernel drops tests nothing
			eventually(t, "packets taken", func() string {
				if got := target.count.packetsIn.Load() - start; got < uint64(i/2) {
					return fmt.Sprint(got, " of ", i)
				}
				return ""
			})
		}
	}
}

// floodStreams opens what a stranger may, and says what it must not.
func floodStreams(t *testing.T, target *Cluster) {
	t.Helper()
	for i, b := range [][]byte{
		nil, []byte("GET / HTTP/1.1\r\n\r\n"),
		{frameVersion | byte(kindList), 0, 0xff, 0xff, 0xff, 0xff},
		append([]byte{frameVersion | byte(kindList), 0}, bytes.Repeat([]byte{0, 0, 255, 255}, 1<<14)...),
		target.net.codec.stream(kindList, bomb(1<<24)),
		target.net.codec.stream(kindList, exchangeOf(0, 1<<20, 0, nil)),
		target.net.codec.stream(kindList, append([]byte{msgUser}, packMap("UserMsgLen", 1<<40)...)),
		target.net.codec.stream(kindKeys, []byte("x")),
		target.net.codec.stream(kind(7), nil),
	} {
		conn, err := net.Dial("tcp", target.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(patience))
		_, _ = conn.Write(b) // it may be closed before its end
		_ = conn.(*net.TCPConn).CloseWrite()
		if _, err := io.Copy(io.Discard, conn); err != nil && strings.Contains(err.Error(), "timeout") {
			t.Errorf("stream %d is still open", i)
		}
		conn.Close()
	}
}

// TestTooManyStreams: who holds streams open keeps others out for a moment,
// not for good, and the members stay.
func TestTooManyStreams(t *testing.T) {
	t.Parallel() // it waits, mostly
	c := startNode(t, newNode(t, "n0", nil))
	var held []net.Conn
	defer func() {
		for _, h := range held {
			h.Close()
		}
	}()
	eventually(t, "newcomers are refused", func() string {
		conn, err := net.Dial("tcp", c.Addr().String())
		if err != nil {
			return err.Error()
		}
		held = append(held, conn)
		if c.count.refused[causeBusy].Load() == 0 {
			return fmt.Sprint(len(held), " are open")
		}
		return ""
	})
	if n := c.net.lobby.len(); n > maxPerHost {
		t.Errorf("%d streams of one address have a place, allowed are %d", n, maxPerHost)
	}
	dripping := make(chan struct{})
	go func() { // one that always has something to say, and never says it
		defer close(dripping)
		drip := held[len(held)-1]
		_, err := drip.Write([]byte{frameVersion | byte(kindList), 0, 0, 0xf, 0xff, 0xff})
		for err == nil {
			<-time.After(100 * time.Millisecond)
			_, err = drip.Write([]byte{0})
		}
	}()
	defer func() { held[len(held)-1].Close(); <-dripping }()
	eventually(t, "silent ones are put out", func() string {
		if n := c.net.lobby.len(); n > 0 {
			return fmt.Sprint(n, " are in")
		}
		return ""
	})
}

func FuzzMeta(f *testing.F) {
	f.Add(Meta{Name: "lb-1", Zone: "a", Version: "1.0", Cluster: "c", Boot: 7, Level: 3, Roles: Shards, Draining: true}.encode())
	f.Add([]byte{1, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decodeMeta(b)
		if err != nil {
			return
		}
		if again, err := decodeMeta(m.encode()); err != nil || again != m {
			t.Fatalf("%+v becomes %+v: %v", m, again, err)
		}
	})
}

func FuzzOrder(f *testing.F) {
	f.Add(order{what: KeyUse, from: "n1", boot: 3, seq: 4, key: make([]byte, 32)}.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		var a KeyAnswer
		_ = a.decode(b)
		o, err := decodeOrder(b)
		if err != nil {
			return
		}
		if again, err := decodeOrder(o.encode()); err != nil || again.from != o.from || again.seq != o.seq || !bytes.Equal(again.key, o.key) {
			t.Fatalf("%+v becomes %+v: %v", o, again, err)
		}
	})
}

func FuzzFrame(f *testing.F) {
	keyed, err := newKeyring([][]byte{make([]byte, 16), make([]byte, 32)}, nil)
	if err != nil {
		f.Fatal(err)
	}
	open, _ := newKeyring(nil, nil)
	codecs := []codec{{open, ""}, {open, "blue"}, {keyed, ""}, {keyed, "blue"}}
	for _, c := range codecs {
		f.Add(c.packet(kindList, []byte("hello")))
		f.Add(c.stream(kindList, []byte("hello")))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, c := range codecs {
			if k, body, err := c.openPacket(b); err == nil {
				if _, again, err := c.openPacket(c.packet(k, body)); err != nil || !bytes.Equal(body, again) {
					t.Fatalf("%x becomes %x: %v", body, again, err)
				}
			}
			_, _, _ = c.readStream(bytes.NewReader(b))
		}
	})
}

// FuzzPort gives a running node, without keys, everything that passes the
// frame: the guard, memberlist, metadata and reports.
func FuzzPort(f *testing.F) {
	f.Add(true, aliveOf("n9", Meta{Name: "x"}.encode()))
	f.Add(false, exchangeOf(0, 0, 1, []byte{1}))
	f.Add(true, compound(aliveOf("n9", nil), []byte{msgUser, 1}))
	f.Add(true, bomb(1<<16))
	n := newFakeNet()
	c := newNode(f, "n0", func(cfg *Config, o *Options) {
		cfg.Bind = "127.1.0.1:7946"
		host{n, netip.MustParseAddr("127.1.0.1")}.use(o)
	})
	if err := c.Start(context.Background()); err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { crash(c) })
	from := net.UDPAddrFromAddrPort(netip.MustParseAddrPort("127.1.0.2:1"))
	f.Fuzz(func(t *testing.T, packet bool, b []byte) {
		if packet {
			c.net.takePacket(c.net.codec.packet(kindList, b), from, time.Now())
			c.net.takePacket(c.net.codec.packet(kindReport, b), from, time.Now())
			return
		}
		near, far := net.Pipe()
		g, _ := c.net.lobby.enter(far)
		if g == nil {
			t.Fatal("no place")
		}
		go c.net.takeStream(g)
		_ = near.SetDeadline(time.Now().Add(time.Second))
		_, _ = near.Write(c.net.codec.stream(kindList, b))
		_, _ = io.ReadAll(io.LimitReader(near, 1))
		near.Close()
	})
}
