package proxy

import (
	"crypto/tls"
	"testing"
	"time"
)

// A client's session goes on at another server that was given the keys, and at none
// that has other certificates: those have other authorities.
func TestTicketsElsewhere(t *testing.T) {
	a := newAuthority(t)
	keys := newFiles(t).serve(a)
	first := newDoor(t, func(g *plan) { g.listener.TLS = keys }, echo(t))
	config := trusting(a)
	config.ClientSessionCache = tls.NewLRUClientSessionCache(1)
	resumes := func(r *door) bool {
		c := r.dialTLS(t, config)
		defer c.Close()
		ask(t, c, get)
		return c.ConnectionState().DidResume
	}
	if resumes(first) || !resumes(first) {
		t.Error("not at the first server itself")
	}
	left := first.Tickets()
	if len(left) != 1 || len(left[0].Keys) != 1 {
		t.Fatalf("it leaves keys of %d listeners", len(left))
	}
	for name, c := range map[string]struct {
		files ListenerTLS
		left  []Tickets
		want  int
	}{
		"the same files": {keys, left, 1},
		"other files":    {newFiles(t).serve(a), left, 0},
		"another place":  {keys, []Tickets{{Listener: "127.0.0.1:1", Files: left[0].Files, Keys: left[0].Keys}}, 0},
		"no key":         {keys, []Tickets{{Listener: left[0].Listener, Files: left[0].Files, Keys: []TicketKey{{Key: []byte("short"), Made: time.Now()}}}}, 0},
		"an old key":     {keys, []Tickets{{Listener: left[0].Listener, Files: left[0].Files, Keys: []TicketKey{{Key: left[0].Keys[0].Key}}}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			config.ClientSessionCache = tls.NewLRUClientSessionCache(1)
			resumes(first)
			r := newDoor(t, func(g *plan) {
				g.listener.TLS = c.files
				g.tune = func(s *Server) {
					if n := s.TakeTickets(c.left, time.Now()); n != c.want {
						t.Errorf("%d keys are taken, want %d", n, c.want)
					}
				}
			}, echo(t))
			if got := resumes(r); got != (c.want > 0) {
				t.Errorf("resumed: %v", got)
			}
		})
	}
}

// Keys are drawn anew now and then, and let go of when no ticket of theirs is good any
// more; there are never many.
func TestTicketsTurn(t *testing.T) {
	var k tickets
	now := time.Now()
	k.turn(now) // of no listener
	if len(k.keys) > 0 {
		t.Error("a key for nothing")
	}
	k.begin(new(tls.Config), [32]byte{1}, now)
	first := k.leave("").Keys[0]
	for day := range 20 {
		k.turn(now.Add(time.Duration(day) * ticketEvery))
		k.turn(now.Add(time.Duration(day)*ticketEvery + time.Minute))
		if n := len(k.keys); n != min(day+1, maxTickets) {
			t.Errorf("%d keys on day %d", n, day)
		}
	}
	for _, other := range k.keys {
		if string(other.Key) == string(first.Key) {
			t.Error("the first is still in use")
		}
	}
	more := k.leave("")
	for range 3 {
		more.Keys = append(more.Keys, more.Keys...)
	}
	var next tickets
	next.begin(new(tls.Config), [32]byte{1}, now)
	if n := next.take(more, now.Add(19*ticketEvery)); n != maxTickets {
		t.Errorf("%d keys were taken", n)
	}
}

// Keys that are said to be of the future are of now: they are let go of no later. What
// is left is no view of what goes on.
func TestTicketsOfTheFuture(t *testing.T) {
	var a, b tickets
	now := time.Now()
	a.begin(new(tls.Config), [32]byte{1}, now.Add(365*24*time.Hour))
	b.begin(new(tls.Config), [32]byte{1}, now)
	left := a.leave("")
	if n := b.take(left, now); n != 1 || b.keys[0].Made.After(now) {
		t.Errorf("%d keys were taken, made at %v", n, b.keys[0].Made)
	}
	a.files[0] = 2
	if left.Files[0] != 1 {
		t.Error("what was left has changed")
	}
}
