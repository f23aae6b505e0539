package transport

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

func TestHelloSurvivesTheWire(t *testing.T) {
	for _, h := range []hello{
		{min: 1, max: 1, cluster: "c", to: "b", from: "a", kind: kindGroup, group: GroupID{7, 2}, at: "10.0.0.1:7947"},
		{min: 1, max: 1, to: "b", from: "a", kind: kindCall, service: "bind"},
		{min: 1, max: 1, cluster: strings.Repeat("c", 255), to: strings.Repeat("b", 255), from: strings.Repeat("a", 255), kind: kindFeed, service: strings.Repeat("s", 255), at: strings.Repeat("t", 255)},
	} {
		r := bytes.NewReader(append(h.append(nil), "rest"...))
		got, err := readHello(r)
		if err != nil || got != h {
			t.Errorf("%+v came back as %+v, %v", h, got, err)
		}
		if rest, _ := io.ReadAll(r); string(rest) != "rest" {
			t.Errorf("it read into what follows: %q is left", rest)
		}
	}
}

func TestHelloOfANewerVersionMaySayMore(t *testing.T) {
	h := hello{min: 1, max: 9, cluster: "c", to: "b", from: "a", kind: kindCall, service: "bind"}
	b := append(h.append(nil), 1, 2, 3)
	b[headSize-1] += 3
	if got, err := readHello(bytes.NewReader(b)); err != nil || got != h {
		t.Errorf("got %+v, %v", got, err)
	}
	b[len(magic)+1] = versionMax
	if _, err := readHello(bytes.NewReader(b)); !errors.Is(err, errHello) {
		t.Errorf("one of our version may not: %v", err)
	}
}

func FuzzHello(f *testing.F) {
	f.Add(hello{min: 1, max: 1, cluster: "c", to: "b", from: "a", kind: kindGroup, group: GroupID{7, 2}}.append(nil))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Add([]byte("SLRP\x01\x01\xff\xff"))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := readHello(bytes.NewReader(b))
		if err != nil || h.max > versionMax || h.min > versionMax || h.max < versionMin {
			return
		}
		out := h.append(nil)
		if !bytes.Equal(out, b[:len(out)]) {
			t.Errorf("%q was read as %+v, which is written as %q", b, h, out)
		}
	})
}

func FuzzReply(f *testing.F) {
	f.Add(reply{version: 1, code: RefusedNode, text: "this is b"}.append(nil))
	f.Add([]byte("\x15\x03\x01\x00\x02\x02\x46"))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := readReply(bytes.NewReader(b))
		if err != nil {
			return
		}
		if out := a.append(nil); !bytes.Equal(out, b[:len(out)]) {
			t.Errorf("%q was read as %+v, which is written as %q", b, a, out)
		}
	})
}

func FuzzFrame(f *testing.F) {
	f.Add(frame{tag: tagAsk, id: 9, time: 250, body: []byte("who")}.append(nil), 100)
	f.Add(frame{tag: tagBeat}.append(nil), 0)
	f.Fuzz(func(t *testing.T, b []byte, limit int) {
		r := bufio.NewReader(bytes.NewReader(b))
		fr, err := readFrame(r, limit)
		if err != nil {
			return
		}
		if len(fr.body) > limit {
			t.Errorf("%d bytes went past a limit of %d", len(fr.body), limit)
		}
		if out := fr.append(nil); !bytes.Equal(out, b[:len(out)]) {
			t.Errorf("%q was read as %+v, which is written as %q", b, fr, out)
		}
	})
}

// TestRefusals has one caller for each thing that must fit, and looks for the
// reason on both sides.
func TestRefusals(t *testing.T) {
	good := hello{min: versionMin, max: versionMax, cluster: "c1", to: "b", from: "a", kind: kindGroup, group: GroupID{1, 1}}
	for _, c := range []struct {
		name string
		say  func(h *hello)
		want Code
	}{
		{"fits", func(*hello) {}, Accepted},
		{"too new", func(h *hello) { h.min, h.max = versionMax+1, versionMax+2 }, RefusedVersion},
		{"too old", func(h *hello) { h.min, h.max = 0, versionMin-1 }, RefusedVersion},
		{"another cluster", func(h *hello) { h.cluster = "c2" }, RefusedCluster},
		{"no cluster", func(h *hello) { h.cluster = "" }, RefusedCluster},
		{"another node", func(h *hello) { h.to = "x" }, RefusedNode},
		{"no such shard", func(h *hello) { h.group.Shard = 9 }, RefusedGroup},
		{"another incarnation", func(h *hello) { h.group.Incarnation = 2 }, RefusedIncarnation},
		{"no such service", func(h *hello) { h.kind, h.service = kindCall, "x" }, RefusedService},
		{"a feed, as a call", func(h *hello) { h.kind, h.service = kindCall, "feed" }, RefusedService},
		{"a call, as a feed", func(h *hello) { h.kind, h.service = kindFeed, "echo" }, RefusedService},
		{"the node is elsewhere", func(h *hello) { h.at = "10.0.0.9:7947" }, RefusedPlace},
		{"the node is there", func(h *hello) { h.at = "10.0.0.1:7947" }, Accepted},
		{"a call of a node that is elsewhere", func(h *hello) { h.at, h.kind, h.service = "10.0.0.9:7947", kindCall, "echo" }, Accepted},
		{"one that goes by who asks", func(h *hello) { h.at, h.kind, h.service = "10.0.0.9:7947", kindCall, "own" }, RefusedPlace},
		{"that, and the node is there", func(h *hello) { h.at, h.kind, h.service = "10.0.0.1:7947", kindCall, "own" }, Accepted},
		{"unknown kind", func(h *hello) { h.kind = 77 }, RefusedHello},
		{"no cluster, open service", func(h *hello) { h.cluster, h.kind, h.service = "", kindCall, "join" }, Accepted},
		{"another cluster, open service", func(h *hello) { h.cluster, h.kind, h.service = "c2", kindCall, "join" }, RefusedCluster},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newPeer(t, &addresses{at: map[string]string{"a": "10.0.0.1:7947"}}, "b")
			echo(b, "echo", Service{})
			echo(b, "join", Service{Open: true})
			echo(b, "own", Service{Placed: true})
			b.Serve("feed", Service{MaxQuestion: 10, Concurrent: 1, Feed: ticker(nil)})
			b.up(t)
			openGroup(t, b, GroupID{1, 1})
			h := good
			c.say(&h)
			a := ask(t, b, h.append(nil))
			if a.code != c.want {
				t.Fatalf("answered %v (%s), want %v", a.code, a.text, c.want)
			}
			if c.want != Accepted {
				if a.text == "" {
					t.Error("refused without a word")
				}
				eventually(t, logged(b.log, "code="+c.want.String()))
			}
		})
	}
}

func TestStrangersHearWhatTheyMetWith(t *testing.T) {
	b := newPeer(t, &addresses{}, "b").up(t)
	for _, say := range []string{"GET / HTTP/1.1\r\n\r\n", "\x16\x03\x01\x00\xf0\x01\x00\x00", "SLRP\x01\x01\xff\xff    "} {
		if a := ask(t, b, []byte(say)); a.code != RefusedHello {
			t.Errorf("%q was answered %v (%s)", say, a.code, a.text)
		}
	}
	eventually(t, logged(b.log, "the caller speaks TLS"))
}

// TestTheCallerLogsToo dials in the real way into a refusal.
func TestTheCallerLogsToo(t *testing.T) {
	at := &addresses{}
	a, b := newPeer(t, at, "a").up(t), newPeer(t, at, "b").up(t)
	openGroup(t, b, GroupID{1, 2})
	_, err := openGroup(t, a, GroupID{1, 1}).DialNode("b", patience)
	r := (*RefusedError)(nil)
	if !errors.As(err, &r) || r.Code != RefusedIncarnation {
		t.Fatalf("got %v", err)
	}
	eventually(t, logged(a.log, "shard 1 incarnation 2"))
	eventually(t, logged(b.log, "shard 1 incarnation 1"))
}

// TestCopiedDirectory: a second process with a node's identity has no voice in
// its groups, and both logs say what is wrong. The first has.
func TestCopiedDirectory(t *testing.T) {
	at, id := &addresses{}, GroupID{1, 1}
	first, b := newPeer(t, at, "a").up(t), newPeer(t, at, "b").up(t)
	twin := newPeer(t, &addresses{at: map[string]string{"b": b.Addr().String()}}, "a").up(t) // it knows itself at its own address
	openGroup(t, b, id)
	_, err := openGroup(t, twin, id).DialNode("b", patience)
	if r := (*RefusedError)(nil); !errors.As(err, &r) || r.Code != RefusedPlace {
		t.Errorf("the copy got %v", err)
	}
	for _, log := range []*journal{twin.log, b.log} {
		eventually(t, logged(log, "a data directory was copied"))
	}
	c, err := openGroup(t, first, id).DialNode("b", patience)
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
}

// TestRefusalsGoQuiet: an hour of knocking is told some sixty times, another fault
// at once, and a fault that comes back after a while as a new one.
func TestRefusalsGoQuiet(t *testing.T) {
	var r refusals
	at, said := time.Now(), 0
	for range 36000 {
		at = at.Add(100 * time.Millisecond)
		if r.may("certificate", at) {
			said++
		}
	}
	if said < 60 || said > 70 {
		t.Errorf("an hour of it was told %d times", said)
	}
	if !r.may("cluster", at) {
		t.Error("another fault was not told")
	}
	at = at.Add(2*refusalMost + time.Minute)
	if !r.may("certificate", at) || r.may("certificate", at.Add(refusalEvery)) || !r.may("certificate", at.Add(refusalEvery+1)) {
		t.Error("what came back was not told as something new")
	}
}

// TestOneHostKeepsNobodyOut, however many connections it opens.
func TestOneHostKeepsNobodyOut(t *testing.T) {
	var g greetings
	taken := 0
	for range 2 * maxGreetings {
		if g.admit("10.0.0.66") {
			taken++
		}
	}
	if taken != maxFromOne || !g.admit("10.0.0.1") {
		t.Fatalf("one host took %d places of %d", taken, maxGreetings)
	}
	g.leave("10.0.0.1")
	for range taken {
		g.leave("10.0.0.66")
	}
	if g.count() != 0 || len(g.by) != 0 {
		t.Errorf("%d places and %d hosts are left over", g.count(), len(g.by))
	}
}

// TestSilentCallersDoNotStay holds every place for those without a hello.
func TestSilentCallersDoNotStay(t *testing.T) {
	b := newPeer(t, &addresses{}, "b").up(t)
	for i := range maxGreetings {
		if !b.greetings.admit(fmt.Sprint("host ", i)) {
			t.Fatalf("place %d was not given", i)
		}
	}
	c, err := net.Dial("tcp", b.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	if n, err := c.Read(make([]byte, 1)); n > 0 || errors.Is(err, errTimeout(err)) {
		t.Errorf("one over the limit was let in: %d, %v", n, err)
	}
	for i := range maxGreetings {
		b.greetings.leave(fmt.Sprint("host ", i))
	}
}

func errTimeout(err error) error {
	if e := net.Error(nil); errors.As(err, &e) && e.Timeout() {
		return e
	}
	return errors.New("another")
}

// ask says something on a bare connection and returns the reply.
func ask(t *testing.T, b peer, say []byte) reply {
	t.Helper()
	c, err := net.Dial("tcp", b.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	if _, err := c.Write(say); err != nil {
		t.Fatal(err)
	}
	a, err := readReply(c)
	if err != nil {
		t.Fatalf("no reply: %v", err)
	}
	return a
}

func openGroup(t *testing.T, p peer, id GroupID) *Group {
	t.Helper()
	g, err := p.Transport.Group(id, p.Transport.Node)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.Close() })
	return g
}
