package fault_test

import (
	"bytes"
	"context"
	"io"
	"math/bits"
	"net"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/starling-lb/starling/testcluster/fault"
)

const linkPatience = 20 * time.Second

// peer is an end that says back what it gets, by both protocols.
func peer(t *testing.T, l *fault.Links, name string) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	pc, err := net.ListenPacket("udp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close(); pc.Close() })
	l.Name(ln.Addr().String(), name)
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() { io.Copy(c, c); c.Close() }()
		}
	}()
	go func() {
		buf := make([]byte, 1500)
		for {
			n, from, err := pc.ReadFrom(buf)
			if err != nil {
				return
			}
			pc.WriteTo(buf[:n], from)
		}
	}()
	return ln.Addr().String()
}

// echo says whether what is sent comes back within a time.
func echo(t *testing.T, c net.Conn, within time.Duration) bool {
	t.Helper()
	if _, err := c.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	c.SetReadDeadline(time.Now().Add(within))
	n, err := c.Read(make([]byte, 8))
	if err != nil && !os.IsTimeout(err) {
		t.Fatal(err)
	}
	return n > 0
}

const soon = 100 * time.Millisecond

// TestLinks: a way that is off lets nothing through in its direction, on new and on
// open connections, and loses nothing of a stream; others are as they were.
func TestLinks(t *testing.T) {
	l := fault.NewLinks()
	t.Cleanup(l.Stop)
	b, c := peer(t, l, "b"), peer(t, l, "c")
	dial := l.Dial("a", (&net.Dialer{}).DialContext)
	toB, err := dial(t.Context(), "tcp", b)
	if err != nil {
		t.Fatal(err)
	}
	defer toB.Close()
	if !echo(t, toB, linkPatience) {
		t.Fatal("a good way lets nothing through")
	}
	for _, off := range [][2]string{{"a", "b"}, {"b", "a"}} {
		l.Set(off[0], off[1], fault.Path{Off: true})
		if echo(t, toB, soon) {
			t.Errorf("%v: an open connection goes on", off)
		}
		ctx, cancel := context.WithTimeout(t.Context(), soon)
		if _, err := dial(ctx, "tcp", b); err == nil {
			t.Errorf("%v: a new connection is made", off)
		}
		cancel()
		if other, err := dial(t.Context(), "tcp", c); err != nil || !echo(t, other, linkPatience) {
			t.Errorf("%v: the way to another is bad: %v", off, err)
		} else {
			other.Close()
		}
		l.Set(off[0], off[1], fault.Path{})
		toB.SetReadDeadline(time.Now().Add(linkPatience))
		if n, err := toB.Read(make([]byte, 8)); n == 0 {
			t.Fatalf("%v: what was sent meanwhile does not come: %v", off, err)
		}
	}
	l.Set("a", "b", fault.Path{UDP: true, Off: true})
	if !echo(t, toB, linkPatience) {
		t.Error("streams suffer from what holds for packets")
	}
	if n := l.Reset("a", "b"); n != 1 {
		t.Errorf("%d connections were reset, want 1", n)
	}
}

// TestLinksOfPackets: packets are lost one way, and late the other.
func TestLinksOfPackets(t *testing.T) {
	l := fault.NewLinks()
	t.Cleanup(l.Stop)
	b := peer(t, l, "b")
	inner, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer inner.Close()
	p := l.Packets("a", inner)
	to, err := net.ResolveUDPAddr("udp", b)
	if err != nil {
		t.Fatal(err)
	}
	comes := func(within time.Duration) bool {
		t.Helper()
		if _, err := p.WriteTo([]byte("x"), to); err != nil {
			t.Fatal(err)
		}
		p.SetReadDeadline(time.Now().Add(within))
		_, _, err := p.ReadFrom(make([]byte, 8))
		return err == nil
	}
	if !comes(linkPatience) {
		t.Fatal("a good way lets nothing through")
	}
	for _, path := range []fault.Path{{Off: true}, {Loss: 1}, {UDP: true, Off: true}} {
		l.Set("a", "b", path)
		if comes(soon) {
			t.Errorf("%+v: a packet came", path)
		}
	}
	l.Set("a", "b", fault.Path{TCP: true, Off: true})
	if !comes(linkPatience) {
		t.Error("packets suffer from what holds for streams")
	}
	l.Set("a", "b", fault.Path{Delay: soon})
	began := time.Now()
	if !comes(linkPatience) || time.Since(began) < soon {
		t.Errorf("a packet that is late by %v came after %v", soon, time.Since(began))
	}
	l.Clear()
	if !comes(linkPatience) {
		t.Error("the way is bad after Clear")
	}
}

// TestStrayPackets: packets come twice, behind others and with a bit that is another,
// each of which one path has; what a stream carries is as it was.
func TestStrayPackets(t *testing.T) {
	l := fault.NewLinks()
	t.Cleanup(l.Stop)
	b := peer(t, l, "b")
	const sent = 200
	play := func(p fault.Path) (got [][]byte) {
		l.Set("a", "b", p)
		come := make(chan []byte, 4*sent)
		for i := range sent {
			packet := []byte{byte(i), 0, 0, 0}
			take := func(b []byte) { come <- bytes.Clone(b) }
			if !l.Send("a", "b", packet, take) {
				take(packet)
			}
			packet[1] = 0xff // who sends may use its buffer again
		}
		want := sent
		if p.Twice == 1 {
			want = 2 * sent
		}
		for len(got) < want {
			select {
			case b := <-come:
				got = append(got, b)
			case <-time.After(linkPatience):
				t.Fatalf("%+v: %d packets came, want %d", p, len(got), want)
			}
		}
		if len(come) > 0 {
			t.Errorf("%+v: more than %d packets came", p, want)
		}
		return got
	}
	each := map[byte]int{}
	for _, b := range play(fault.Path{Twice: 1, TCP: true}) { // whatever else holds for streams
		each[b[0]]++
	}
	for i, n := range each {
		if n != 2 {
			t.Errorf("packet %d came %d times, want twice", i, n)
		}
	}
	order := func(a, b []byte) int { return int(a[0]) - int(b[0]) }
	got := play(fault.Path{Behind: 0.5})
	if slices.IsSortedFunc(got, order) {
		t.Error("half of the packets are behind others, and they came in order")
	}
	slices.SortFunc(got, order)
	for i, b := range got {
		if !bytes.Equal(b, []byte{byte(i), 0, 0, 0}) {
			t.Fatalf("packet %d came as %x, though only late", i, b)
		}
	}
	wrong := 0
	for _, b := range play(fault.Path{Flipped: 1}) {
		wrong += bits.OnesCount8(b[1]) + bits.OnesCount8(b[2]) + bits.OnesCount8(b[3])
	}
	if wrong < sent/4 || wrong > sent {
		t.Errorf("%d bits of 24 of 32 are other ones in %d packets, want about %d", wrong, sent, sent*3/4)
	}
	c, err := l.Dial("a", (&net.Dialer{}).DialContext)(t.Context(), "tcp", b)
	if err != nil || !echo(t, c, linkPatience) {
		t.Fatalf("a stream: %v", err)
	}
	c.Close()
}
