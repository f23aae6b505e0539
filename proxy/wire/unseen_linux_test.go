package wire

import (
	"io"
	"net"
	"testing"
	"time"
)

// What a backend did around the request tells whether it can have begun it.
func TestUnseen(t *testing.T) {
	read := func(n int) func(testing.TB, *net.TCPConn) {
		return func(_ testing.TB, far *net.TCPConn) { _, _ = io.ReadFull(far, make([]byte, n)) }
	}
	closes, half := leavings()["close"], leavings()["half close"]
	for _, c := range []struct {
		name   string
		before func(testing.TB, *net.TCPConn)
		after  []func(testing.TB, *net.TCPConn)
		want   bool
	}{
		{"closed before", closes, nil, true},
		{"reset before", reset, nil, false},
		{"half closed before, and silent", half, nil, false},
		{"half closed before, read it, closed", half, []func(testing.TB, *net.TCPConn){read(7), closes}, false},
		{"read it, closed", nil, []func(testing.TB, *net.TCPConn){read(7), closes}, false},
		{"read it, half closed", nil, []func(testing.TB, *net.TCPConn){read(7), half}, false},
		{"read it, reset", nil, []func(testing.TB, *net.TCPConn){read(7), reset}, false},
		{"read a part, closed", nil, []func(testing.TB, *net.TCPConn){read(3), closes}, false},
		{"read it, half closed, reset", nil, []func(testing.TB, *net.TCPConn){read(7), half, reset}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for range 10 {
				l, far := reused(t, "edge")
				if c.before != nil {
					c.before(t, far)
					eventually(t, "the news came", func() bool { return !quiet(l.nc) })
				}
				backend := async(func() error {
					for _, do := range c.after {
						do(t, far)
					}
					return nil
				})
				_, err := exchange(l, "request")
				if err == nil {
					t.Fatal("an answer came")
				}
				limit := 100 * time.Millisecond
				if c.want {
					limit = 10 * time.Second
				}
				if got := l.Unseen(err, limit); got != c.want {
					t.Fatalf("unseen %v after %v", got, err)
				}
				await(t, backend, "the backend's end")
				l.Close()
			}
		})
	}
}

// Where it cannot be known nothing is waited for.
func TestUnseenIsNotGuessed(t *testing.T) {
	gone := func(t *testing.T, way string) *Link {
		l, far := reused(t, way)
		leavings()["close"](t, far)
		eventually(t, "the news came", func() bool { return !quiet(l.nc) })
		return l
	}
	began := time.Now()
	plain := gone(t, "plain")
	_, err := exchange(plain, "request")
	if plain.Unseen(err, time.Hour) {
		t.Error("by the portable loop")
	}
	parts := gone(t, "edge")
	if err := parts.Send([]byte("request"), false, time.Second); err != nil {
		t.Fatal(err)
	}
	if err := parts.ReadResponse(&Response{}, false, 15*time.Second, 64<<10); parts.Unseen(err, time.Hour) {
		t.Error("a request in parts")
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("it took %v", took)
	}
}
