package transport

import (
	"context"
	"testing"
)

// TestRetired: nobody reaches a node that has retired, and Raft's connections are cut
// on both sides; it calls others and follows their feeds as before.
func TestRetired(t *testing.T) {
	at := &addresses{}
	a, b := newPeer(t, at, "a"), newPeer(t, at, "b")
	next, got := make(chan []byte), make(chan byte, 10)
	b.Serve("tick", Service{MaxQuestion: 10, Concurrent: 1, Feed: ticker(next)})
	echo(a, "echo", Service{})
	echo(b, "echo", Service{})
	a.up(t)
	b.up(t)
	ga, gb := openGroup(t, a, GroupID{1, 1}), openGroup(t, b, GroupID{1, 1})
	out, err := ga.DialNode("b", patience)
	if err != nil {
		t.Fatal(err)
	}
	in, err := gb.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Call(t.Context(), "a", "echo", nil); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	lives, over := 0, make(chan struct{})
	go func() {
		defer close(over)
		a.Follow(ctx, "b", "tick", Reader{
			Open: func() []byte { lives++; return []byte{0} },
			Take: func(m []byte) error { got <- m[0]; return nil },
		})
	}()
	<-got
	a.Retire(t.Context())
	next <- []byte{1}
	if m := <-got; m != 1 {
		t.Errorf("the feed brings %d", m)
	}
	if answer, err := a.Call(t.Context(), "b", "echo", []byte("x")); err != nil || string(answer) != "a:x" {
		t.Errorf("it asks, and gets %q, %v", answer, err)
	}
	if _, err := b.Call(t.Context(), "a", "echo", nil); err == nil {
		t.Error("it is asked, and answers")
	}
	for _, c := range []interface{ Read([]byte) (int, error) }{out, in} {
		if _, err := c.Read(make([]byte, 1)); err == nil {
			t.Error("a group's connection goes on")
		}
	}
	cancel()
	<-over
	if lives != 1 {
		t.Errorf("the feed was opened %d times", lives)
	}
}
