package chaos

import (
	"context"
	"io"
	"net"
	"testing"
	"time"

	"github.com/starling-lb/starling/testcluster/fault"
)

// standing is a node that says back what it gets.
func standing(t *testing.T, n *relays, name string, number int) *member {
	t.Helper()
	at, err := n.places(number)
	if err != nil {
		t.Fatal(err)
	}
	m := &member{name: name, at: at}
	for _, address := range []string{at.gossip, at.rpc} {
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go func() { io.Copy(c, c); c.Close() }()
			}
		}()
	}
	if err := n.open(m); err != nil {
		t.Fatal(err)
	}
	return m
}

// TestRelays: what a node sends another comes from where that one is known to be,
// goes the way that is set for the two, in one direction or both, and nowhere once
// the node is down.
func TestRelays(t *testing.T) {
	n, err := newRelays()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.end)
	a, b := standing(t, n, "n1", 1), standing(t, n, "n2", 2)
	from := &net.TCPAddr{IP: net.ParseIP(hostOf(a.at.gossip))}
	door := net.JoinHostPort(b.at.advertise, rpcPort)
	call := func() (net.Conn, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		return (&net.Dialer{LocalAddr: from}).DialContext(ctx, "tcp", door)
	}
	c, err := call()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	echo := func(within time.Duration) bool {
		c.SetDeadline(time.Now().Add(within))
		_, err := c.Write([]byte("x"))
		if err == nil {
			_, err = io.ReadFull(c, make([]byte, 1))
		}
		return err == nil
	}
	if !echo(20 * time.Second) {
		t.Fatal("nothing comes back")
	}
	n.links.Set("n2", "n1", fault.Path{Off: true})
	if echo(100 * time.Millisecond) {
		t.Error("what n2 sends comes, though it is lost")
	}
	n.links.Clear()
	c.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Errorf("what was under way does not come: %v", err)
	}

	pa, err := net.ListenPacket("udp", a.at.gossip)
	if err != nil {
		t.Fatal(err)
	}
	defer pa.Close()
	pb, err := net.ListenPacket("udp", b.at.gossip)
	if err != nil {
		t.Fatal(err)
	}
	defer pb.Close()
	if _, err := pa.WriteTo([]byte("hello"), &net.UDPAddr{IP: net.ParseIP(b.at.advertise), Port: 7946}); err != nil {
		t.Fatal(err)
	}
	pb.SetReadDeadline(time.Now().Add(20 * time.Second))
	buf := make([]byte, 16)
	k, who, err := pb.ReadFrom(buf)
	if err != nil || string(buf[:k]) != "hello" || hostOf(who.String()) != a.at.advertise {
		t.Errorf("a packet: %q from %v, %v; want it from %s", buf[:k], who, err, a.at.advertise)
	}

	n.shut(b)
	if echo(20 * time.Second) {
		t.Error("a connection outlives its node")
	}
	if c, err := call(); err == nil {
		c.Close()
		t.Error("a node that is down is reached")
	}
}
