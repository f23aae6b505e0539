package gossip

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/starling-lb/starling/proxy/backend"
)

// What whoever may speak on the port can try: everybody on the machine where
// there are no keys, everybody with a recorder where there are.

// inject gives a node a packet as if it came from the network.
func (w *world) inject(i int, b []byte) {
	c := w.nodes[i]
	c.net.takePacket(c.net.codec.packet(kindList, b), tcpAddr("127.9.9.9:9"), time.Now())
	<-time.After(time.Millisecond)
}

func said(typ byte, entries ...any) []byte { return append([]byte{typ}, packMap(entries...)...) }

// aliveWords is an alive message with all that it may say.
func aliveWords(node string, at netip.AddrPort, meta []byte, incarnation int, versions string) []byte {
	addr := at.Addr().As4()
	return said(msgAlive, "Node", node, "Addr", addr[:], "Port", int(at.Port()), "Meta", meta, "Incarnation", incarnation, "Vsn", []byte(versions))
}

// TestNamesThatCannotBeShown: a node whose texts would break a metric, a log or a
// terminal is no member; one whose own name would says it otherwise.
func TestNamesThatCannotBeShown(t *testing.T) {
	for _, name := range []string{"\xff\xfe", "a\nb", "\x1b[2J", "x\u202ey"} {
		m := Meta{Name: "good", Boot: 1}
		raw := bytes.Replace(m.encode(), []byte("\x04good"), append([]byte{byte(len(name))}, name...), 1)
		if _, err := decodeMeta(raw); !errors.Is(err, errMeta) {
			t.Errorf("%q as a name: %v", name, err)
		}
		if err := (guard{}).packet(aliveWords(name, netip.MustParseAddrPort("127.0.0.1:1"), nil, 1, versions)); causeOf(err) != causeBroken {
			t.Errorf("%q as an id: %v", name, err)
		}
		if got, err := decodeMeta(Meta{Name: name}.encode()); err != nil || strings.Contains(got.Name, name) {
			t.Errorf("our own name %q: %q, %v", name, got.Name, err)
		}
	}
	long := strings.Repeat("ü", 40)
	if got, err := decodeMeta(Meta{Name: long}.encode()); err != nil || got.Name != long[:maxMetaText] {
		t.Errorf("a long name becomes %q, %v", got.Name, err)
	}
	if _, err := New(DefaultConfig(), Options{ID: "a b"}); err == nil {
		t.Error("an id with a blank was taken")
	}
}

// TestNamesThatAreAlike: whatever nodes are called, metrics can be scraped.
func TestNamesThatAreAlike(t *testing.T) {
	inWorlds(t, 1, func(w *world) {
		registry := prometheus.NewPedanticRegistry()
		for i, name := range []string{"self", "x", "x", "x n2", ""} {
			w.nodes = append(w.nodes, w.make(i, func(_ *Config, o *Options) {
				o.Self.Name = name
				if i == 0 {
					o.Metrics = registry
				}
			}))
			if err := w.nodes[i].Start(context.Background()); err != nil {
				w.t.Fatal(err)
			}
		}
		w.within(5*time.Second, "membership", complete(w.nodes, 5))
		if _, err := registry.Gather(); err != nil {
			w.t.Error(err)
		}
	})
}

// TestForgedWords: one message of each kind that would do lasting harm to a
// cluster of memberlists does none.
func TestForgedWords(t *testing.T) {
	for _, tt := range []struct {
		name string
		b    func(w *world) []byte
	}{
		{"a node that needs another protocol", func(w *world) []byte {
			return aliveWords("n9", w.addr(9), Meta{Name: "n9"}.encode(), 1, "\x05\x05\x05\x00\x00\x00")
		}},
		{"a suspicion that cannot be contradicted", func(*world) []byte {
			return said(msgSuspect, "Incarnation", 1<<32-1, "Node", "n1", "From", "n2")
		}},
		{"a death that cannot be contradicted", func(*world) []byte {
			return said(msgDead, "Incarnation", 1<<32-1, "Node", "n1", "From", "n2")
		}},
		{"a life that cannot be contradicted", func(w *world) []byte {
			return aliveWords("n1", w.addr(1), Meta{Name: "n1", Boot: 1}.encode(), 1<<32-1, versions)
		}},
		{"an end that was recorded", func(*world) []byte {
			return said(msgDead, "Incarnation", 40, "Node", "n1", "From", "n1")
		}},
		{"another address of a member", func(w *world) []byte {
			return aliveWords("n1", w.addr(77), Meta{Name: "n1", Boot: 1}.encode(), 9, versions)
		}},
		{"metadata that is none", func(w *world) []byte {
			return aliveWords("n1", w.addr(1), []byte("?"), 9, versions)
		}},
		{"another cluster's metadata, recorded", func(w *world) []byte {
			return aliveWords("n1", w.addr(1), Meta{Name: "n1", Cluster: "two"}.encode(), 0, versions)
		}},
		{"another cluster's metadata, forged", func(w *world) []byte {
			return aliveWords("n1", w.addr(1), Meta{Name: "n1", Cluster: "two"}.encode(), 9, versions)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inWorlds(t, 1, func(w *world) {
				for i := range 3 {
					w.nodes = append(w.nodes, w.make(i, func(_ *Config, o *Options) { o.Self.Cluster = "one" }))
					if err := w.nodes[i].Start(context.Background()); err != nil {
						w.t.Fatal(err)
					}
				}
				w.within(5*time.Second, "membership", complete(w.nodes, 3))
				<-time.After(10 * time.Second)
				for i := range 3 {
					w.inject(i, tt.b(w))
				}
				<-time.After(20 * time.Second)
				if why := complete(w.nodes, 3)(); why != "" {
					w.t.Fatal(why)
				}
				for _, m := range w.nodes[0].Members() {
					if m.ID == "n1" && (m.Address != w.addr(1) || m.Meta.Cluster != "one" || m.Meta.Boot != w.nodes[1].Boot()) {
						w.t.Errorf("n1 is %+v", m)
					}
				}
				late := w.make(3, func(_ *Config, o *Options) { o.Self.Cluster = "one" })
				if err := late.Start(context.Background()); err != nil {
					w.t.Fatal(err)
				}
				w.nodes = append(w.nodes, late)
				w.within(5*time.Second, "somebody else joins", complete(w.nodes, 4))
			})
		})
	}
}

// TestInventedMembers: whoever invents members, some of them leaving at once,
// makes a node remember a bounded number; those that are there stay.
func TestInventedMembers(t *testing.T) {
	inWorlds(t, 1, func(w *world) {
		w.start(3)
		w.within(5*time.Second, "membership", complete(w.nodes, 3))
		c := w.nodes[0]
		before := heap()
		for i := range 4000 {
			id := fmt.Sprint("invented-", i)
			w.inject(0, aliveWords(id, w.addr(1000+i), Meta{Name: id}.encode(), 1, versions))
			if i%2 == 0 {
				w.inject(0, said(msgDead, "Incarnation", 1, "Node", id, "From", id))
			}
		}
		if n := len(c.Members()); n > maxKnown {
			w.t.Errorf("it knows %d, want at most %d", n, maxKnown)
		}
		if n := c.list.NumMembers(); n > maxKnown {
			w.t.Errorf("memberlist has %d alive, want at most %d", n, maxKnown)
		}
		if c.count.refused[causeFull].Load() == 0 {
			w.t.Error("nobody was refused for want of room")
		}
		if after := heap(); after > before+32<<20 {
			w.t.Errorf("the heap grew by %d bytes", after-before)
		}
		for _, id := range []string{"n1", "n2"} {
			if got := stateOf(c, id); got != "alive" && got != "suspect" {
				w.t.Errorf("%s is %s", id, got)
			}
		}
		<-time.After(15 * time.Minute) // they do not answer, and are forgotten once somebody wants their room
		late := w.make(3, nil)
		if err := late.Start(context.Background()); err != nil {
			w.t.Fatal(err)
		}
		w.nodes = append(w.nodes, late)
		w.within(10*time.Second, "somebody joins", complete(w.nodes, 4))
		if got := len(c.Members()); got > maxGone+4 {
			w.t.Errorf("%d are still known", got)
		}
	})
}

// TestRecordedReports: what a node said is good once: played back, at once or
// after its restart, it changes no view.
func TestRecordedReports(t *testing.T) {
	inWorlds(t, 3, func(w *world) {
		var tape [][]byte
		w.net.tap = func(from, to netip.AddrPort, data []byte) {
			if from == w.addr(1) && to == w.addr(0) && kind(data[0]&7) == kindReport {
				tape = append(tape, data)
			}
		}
		desks := []*desk{newDesk(8), newDesk(8)}
		for i, d := range desks {
			w.nodes = append(w.nodes, w.make(i, func(_ *Config, o *Options) { d.use(o) }))
			if err := w.nodes[i].Start(context.Background()); err != nil {
				w.t.Fatal(err)
			}
		}
		w.within(5*time.Second, "membership", complete(w.nodes, 2))
		id := desks[0].id(3)
		for i := range 40 {
			desks[1].set(id, func(r *backend.Report) { r.InFlight = 100 + i })
			<-time.After(400 * time.Millisecond)
		}
		desks[1].set(id, func(r *backend.Report) { r.InFlight = 7 })
		w.within(time.Second, "the last word", hear(desks, 1, id, 7))
		play := func(when string, want int) {
			w.net.mu.Lock()
			recorded := tape
			w.net.mu.Unlock()
			for range 3 {
				for _, b := range recorded {
					w.nodes[0].net.takePacket(b, tcpAddr("127.9.9.9:9"), time.Now())
				}
				<-time.After(50 * time.Millisecond)
				if got := desks[0].hears(id).InFlight; got != want {
					w.t.Fatalf("%s: a played back report makes it %d, want %d", when, got, want)
				}
			}
		}
		play("at once", 7)
		crash(w.nodes[1])
		<-time.After(time.Second)
		w.nodes[1] = w.make(1, func(_ *Config, o *Options) { desks[1].use(o) })
		desks[1].set(id, func(r *backend.Report) { r.InFlight = 3 })
		if err := w.nodes[1].Start(context.Background()); err != nil {
			w.t.Fatal(err)
		}
		w.within(10*time.Second, "the new start's word", hear(desks, 1, id, 3))
		w.net.mu.Lock()
		w.net.tap = nil
		w.net.mu.Unlock()
		play("after a restart", 3)
		crash(w.nodes[1])
		w.within(10*time.Second, "its end", func() string {
			if got := desks[0].hears(id).InFlight; got != 0 {
				return fmt.Sprint(got)
			}
			return ""
		})
		play("after its end", 0)
	})
}

// TestBootNumbers: whatever happens to the file, a start has a higher number
// than those before it.
func TestBootNumbers(t *testing.T) {
	at := func(s int64) time.Time { return time.Unix(firstYear+s, 0) }
	dir := t.TempDir()
	next := func(now time.Time) uint64 {
		t.Helper()
		n, err := nextBoot(dir, now)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for i, want := range []uint64{1000, 1001, 1002} { // three starts within a second
		if got := next(at(1000)); got != want {
			t.Errorf("start %d is %d, want %d", i, got, want)
		}
	}
	if got := next(at(-5000)); got != 1003 {
		t.Errorf("with the clock set back: %d", got)
	}
	if got := next(at(2000)); got != 2000 {
		t.Errorf("a day later: %d", got)
	}
	dir = t.TempDir() // the file is lost
	if got := next(at(2500)); got != 2500 {
		t.Errorf("without the file: %d, an earlier start had 2000", got)
	}
}

// TestSetClock: a byte that came in a future that was taken back keeps no backend
// in.
func TestSetClock(t *testing.T) {
	now := time.Now()
	for _, tt := range []struct {
		ahead time.Duration
		want  int
	}{{-time.Second, 100}, {0, 0}, {time.Hour, -1}, {-time.Hour, -1}} {
		if got := toEntry(backend.Report{ID: "b", Heard: now.Add(tt.ahead).UnixNano()}, now).heard; got != tt.want {
			t.Errorf("heard %v from now: %d, want %d", tt.ahead, got, tt.want)
		}
	}
}

// TestManyReportsOfNothing: a member that speaks of hundreds of thousands of
// backends that nobody knows, under as many names as it can invent, is heard to
// a bound.
func TestManyReportsOfNothing(t *testing.T) {
	r := newReports()
	p := &peers{byMark: map[uint64]int{}}
	before := heap()
	for node := range 12 {
		mark := uint64(node + 1)
		p.byMark[mark] = node
		p.list = append(p.list, peer{id: fmt.Sprint(node), mark: mark, boot: 1})
		c := chunk{origin: mark, boot: 1, received: time.Now()}
		for n := range 20_000 {
			c.seq = uint64(n/40+1) << lookBits
			if n%40 == 0 {
				c.entries = nil
			}
			c.entries = append(c.entries, entry{mark: uint64(node)<<35 | uint64(n)<<17, inFlight: 1, heard: -1})
			if n%40 == 39 {
				r.merge(c)
			}
		}
		if got := len(r.origins[mark].entries); got > maxEntries {
			t.Fatalf("%d entries of one node", got)
		}
	}
	total := 0
	for _, o := range r.origins {
		total += len(o.entries)
	}
	if total > maxHeld || total != r.held {
		t.Errorf("%d entries are kept and %d counted, want at most %d", total, r.held, maxHeld)
	}
	if after := heap(); after > before+100<<20 {
		t.Errorf("the heap grew by %d bytes", after-before)
	}
	r.sum(&sums{}, p, &map[uint64]string{}, time.Now())
	if len(r.dirty) != 0 {
		t.Errorf("%d backends wait to be summed", len(r.dirty))
	}
	r.sum(&sums{}, &peers{byMark: map[uint64]int{}}, &map[uint64]string{}, time.Now())
	if r.held != 0 || len(r.origins) != 0 {
		t.Errorf("%d entries of nobody are left", r.held)
	}
}

// TestRecordsOfAnotherCluster: a node that belonged to none and heard of two
// clusters' records takes only those of its own along.
func TestRecordsOfAnotherCluster(t *testing.T) {
	inWorlds(t, 3, func(w *world) {
		for i := range 4 {
			w.nodes = append(w.nodes, w.make(i, func(_ *Config, o *Options) { o.Self.Cluster = []string{"one", "two"}[i%2] }))
			if err := w.nodes[i].Start(context.Background()); err != nil {
				w.t.Fatal(err)
			}
		}
		w.within(10*time.Second, "each of its own", complete(w.nodes, 2))
		for i, of := range []string{"one", "two"} {
			if err := w.nodes[i].Publish(Record{LeaderHint, of, 5, []byte(of)}); err != nil {
				w.t.Fatal(err)
			}
			if err := w.nodes[i].Publish(Record{LeaderHint, "both", uint64(9 - i), []byte(of)}); err != nil {
				w.t.Fatal(err)
			}
		}
		newcomer := w.make(4, nil)
		if err := newcomer.Start(context.Background()); err != nil {
			w.t.Fatal(err)
		}
		w.nodes = append(w.nodes, newcomer)
		w.within(30*time.Second, "the newcomer hears of both", func() string {
			for _, key := range []string{"one", "two", "both"} {
				if _, ok := newcomer.Record(LeaderHint, key); !ok {
					return key + " is not known"
				}
			}
			return ""
		})
		newcomer.Update(func(m *Meta) { m.Cluster = "two" })
		if _, ok := newcomer.Record(LeaderHint, "one"); ok {
			w.t.Error("the newcomer kept another cluster's record")
		}
		<-time.After(2 * time.Minute)
		for i, c := range w.nodes {
			own, other := []string{"one", "two"}[i%2], []string{"two", "one"}[i%2]
			if i == 4 {
				own, other = "two", "one"
			}
			if _, ok := c.Record(LeaderHint, other); ok {
				w.t.Errorf("node %d of %s has a record of %s", i, own, other)
			}
			if r, ok := c.Record(LeaderHint, "both"); !ok || string(r.Value) != own {
				w.t.Errorf("node %d of %s has %q", i, own, r.Value)
			}
		}
	})
}

// TestTooManyRecords: junk fills what there is room for, and no more; the highest
// revision there is can be beaten by none, and breaks nothing.
func TestTooManyRecords(t *testing.T) {
	c := startNode(t, newNode(t, "n0", nil))
	for i := range 3 * maxRecords {
		junk := marked{Record{Decision, fmt.Sprint("junk", i), 1<<64 - 1, bytes.Repeat([]byte{1}, maxValue)}, 0}
		if err := c.learn(junk.encode()); err != nil && !errors.Is(err, ErrRecords) {
			t.Fatal(err)
		}
	}
	if n := len(c.records.known); n != maxRecords {
		t.Errorf("%d records, want %d", n, maxRecords)
	}
	if n := c.records.queue.NumQueued(); n > maxRecords {
		t.Errorf("%d records wait", n)
	}
	if n := len(c.LocalState(false)); n > maxState {
		t.Errorf("an exchange carries %d bytes, allowed are %d", n, maxState)
	}
	if err := c.Publish(Record{Decision, "junk1", 1<<64 - 1, nil}); err != nil {
		t.Error(err)
	}
}

// TestCopiedDirectory: of two live nodes with one id the first stays what it was
// to the others, and they say what is wrong.
func TestCopiedDirectory(t *testing.T) {
	inWorlds(t, 3, func(w *world) {
		var book logBook
		desks := []*desk{newDesk(4), newDesk(4), newDesk(4)}
		for i, d := range desks {
			w.nodes = append(w.nodes, w.make(i, func(_ *Config, o *Options) {
				d.use(o)
				if i == 0 {
					o.Logger = book.logger()
				}
			}))
			if err := w.nodes[i].Start(context.Background()); err != nil {
				w.t.Fatal(err)
			}
		}
		w.within(5*time.Second, "membership", complete(w.nodes, 3))
		id := desks[0].id(1)
		desks[2].set(id, func(r *backend.Report) { r.InFlight = 5 })
		w.within(time.Second, "the first one's word", hear(desks[:2], -1, id, 5))
		other := newDesk(4)
		other.set(id, func(r *backend.Report) { r.InFlight = 90 })
		again := w.make(2, func(cfg *Config, o *Options) {
			cfg.Bind = w.addr(40).String()
			host{w.net, w.addr(40).Addr()}.use(o)
			other.use(o)
		})
		if err := again.Start(context.Background()); err != nil {
			w.t.Fatal(err)
		}
		defer crash(again)
		for range 60 {
			<-time.After(time.Second)
			if why := hear(desks[:2], -1, id, 5)(); why != "" {
				w.t.Fatal(why)
			}
			for _, m := range w.nodes[0].Members() {
				if m.ID == "n2" && m.Address != w.addr(2) {
					w.t.Fatalf("n2 is at %v", m.Address)
				}
			}
		}
		if !strings.Contains(book.String(), "a data directory was copied") {
			w.t.Errorf("nobody says so: %s", book.String())
		}
	})
}

// TestSwappedAddresses: two nodes that come back each at the other's address,
// after a crash of both, are found again.
func TestSwappedAddresses(t *testing.T) {
	inWorlds(t, 3, func(w *world) {
		w.start(4)
		w.within(5*time.Second, "membership", complete(w.nodes, 4))
		crash(w.nodes[2])
		crash(w.nodes[3])
		for _, i := range []int{2, 3} {
			w.nodes[i] = w.make(i, func(cfg *Config, o *Options) {
				cfg.Bind = w.addr(5 - i).String()
				host{w.net, w.addr(5 - i).Addr()}.use(o)
			})
			if err := w.nodes[i].Start(context.Background()); err != nil {
				w.t.Fatal(err)
			}
		}
		w.within(40*time.Second, "both are back", func() string {
			for _, m := range w.nodes[0].Members() {
				if m.ID == "n2" && m.Address != w.addr(3) || m.ID == "n3" && m.Address != w.addr(2) {
					return fmt.Sprintf("%s is known at %v, %s", m.ID, m.Address, m.State)
				}
			}
			return complete(w.nodes, 4)()
		})
	})
}

// countingReader counts what is read of it.
type countingReader struct {
	io.Reader
	n int
}

func (r *countingReader) Read(b []byte) (int, error) {
	n, err := r.Reader.Read(b)
	r.n += n
	return n, err
}

// TestStreamParts: a stream's body comes through whole at every size, and in no
// other form: cut, reordered, or mixed from two.
func TestStreamParts(t *testing.T) {
	keyed, err := newKeyring([][]byte{make([]byte, 32)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	open, _ := newKeyring(nil, nil)
	body := func(n int, of byte) []byte { return bytes.Repeat([]byte{of}, n) }
	for _, c := range []codec{{keyed, "blue"}, {open, ""}} {
		for _, n := range []int{0, 1, partSize - 1, partSize, partSize + 1, 3*partSize + 5, maxBody} {
			k, got, err := c.readStream(bytes.NewReader(c.stream(kindList, body(n, 7))))
			if err != nil || k != kindList || !bytes.Equal(got, body(n, 7)) {
				t.Errorf("%d bytes, keyed %v: %d bytes, %v", n, c.keys.enabled(), len(got), err)
			}
		}
	}
	c := codec{keyed, ""}
	head, part := 6, partSize+sealSize
	one, two := c.stream(kindList, body(3*partSize, 1)), c.stream(kindList, body(3*partSize, 2))
	cut := func(b []byte, i int) []byte { return b[head+i*part : head+(i+1)*part] }
	for name, parts := range map[string][][]byte{
		"reordered":        {one[:head], cut(one, 0), cut(one, 2), cut(one, 1)},
		"twice the first":  {one[:head], cut(one, 0), cut(one, 0), cut(one, 2)},
		"mixed of two":     {one[:head], cut(one, 0), cut(two, 1), cut(one, 2)},
		"without its end":  {one[:head], cut(one, 0), cut(one, 1)},
		"with less to say": {c.stream(kindList, body(2*partSize, 3))[:head], cut(one, 0), cut(one, 1)},
	} {
		if _, got, err := c.readStream(bytes.NewReader(bytes.Join(parts, nil))); err == nil {
			t.Errorf("%s: %d bytes came through", name, len(got))
		}
	}
	noise := &countingReader{Reader: io.MultiReader(bytes.NewReader(one[:head]), bytes.NewReader(body(3*part, 9)))}
	if _, _, err := c.readStream(noise); causeOf(err) != causeKey || noise.n > head+part {
		t.Errorf("of noise %d bytes were read: %v", noise.n, err)
	}
}

// TestGarbageStreams: a stranger without the key that sends as much as a frame may
// hold costs the one part that could not be opened.
func TestGarbageStreams(t *testing.T) {
	c := startNode(t, newNode(t, "n0", func(cfg *Config, _ *Options) { cfg.Keys = []string{testKey(1)} }))
	other, err := newKeyring([][]byte{bytes.Repeat([]byte{7}, 32)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	frame := codec{other, ""}.stream(kindList, make([]byte, maxBody))
	const strangers = 40
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range strangers {
		conn, err := net.Dial("tcp", c.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(patience))
		go func() { _, _ = conn.Write(frame) }() // it is closed before its end
		answer, _ := io.ReadAll(conn)            // a reset may come first
		if len(answer) > 0 && answer[0]&7 != byte(kindRefusal) {
			t.Errorf("the answer is %x", answer)
		}
		conn.Close()
	}
	eventually(t, "refusals", func() string {
		if n := c.count.refused[causeKey].Load(); n < strangers {
			return fmt.Sprint(n)
		}
		return ""
	})
	runtime.ReadMemStats(&after)
	if per := (after.TotalAlloc - before.TotalAlloc) / strangers; per > 4*partSize {
		t.Errorf("each stranger cost %d bytes", per)
	}
}
