package wire

import (
	"io"
	"net"
	"testing"
	"time"
)

// reused is a link that has carried an exchange and was kept.
func reused(t testing.TB, way string) (*Link, *net.TCPConn) {
	t.Helper()
	l, far := linked(t, way)
	backend := async(func() error {
		_, err := io.ReadFull(far, make([]byte, 7))
		_, _ = io.WriteString(far, head("HTTP/1.1 200 OK", "Content-Length: 0"))
		return err
	})
	if _, err := exchange(l, "request"); err != nil {
		t.Fatal(err)
	}
	if err := await(t, backend, "the first exchange"); err != nil {
		t.Fatal(err)
	}
	idle := NewIdle(1)
	idle.Put(l, time.Now())
	if idle.Get() != l {
		t.Fatal("the link was not kept")
	}
	return l, far
}

// A kept link that the backend closed, before the request came or with it.
func TestStale(t *testing.T) {
	whole := func(far *net.TCPConn) { _, _ = io.ReadFull(far, make([]byte, 7)) }
	part := func(far *net.TCPConn) { _, _ = io.ReadFull(far, make([]byte, 1)) }
	for _, c := range []struct {
		name   string
		before func(testing.TB, *net.TCPConn) // before the request is sent
		took   func(*net.TCPConn)             // of the request
		after  func(testing.TB, *net.TCPConn)
	}{
		{"closed before", leavings()["close"], nil, nil},
		{"reset before", reset, nil, nil},
		{"closed after it read all", nil, whole, leavings()["close"]},
		{"closed after it read a part", nil, part, leavings()["close"]},
		{"reset after it read all", nil, whole, reset},
		{"reset after it read a part", nil, part, reset},
		{"half closed after it read all", nil, whole, leavings()["half close"]},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, way := range []string{"edge", "plain"} {
				for range 20 {
					l, far := reused(t, way)
					if c.before != nil {
						c.before(t, far)
						eventually(t, "the news came", func() bool { return !quiet(l.nc) })
					}
					backend := async(func() error {
						if c.took != nil {
							c.took(far)
						}
						if c.after != nil {
							c.after(t, far)
						}
						return nil
					})
					_, err := exchange(l, "request")
					if err == nil {
						t.Fatal("an answer came")
					}
					if !l.Stale(err) {
						t.Fatalf("%s: not stale: %v", way, err)
					}
					await(t, backend, "the backend's end")
					l.Close()
				}
			}
		})
	}
}

// What is no sign of a link closed between exchanges.
func TestNotStale(t *testing.T) {
	fresh, _ := linked(t, "plain")
	answered, far := reused(t, "plain")
	send(t, far, "HT")
	if _, err := read(&answered.End, 1, bound{idle: 10 * time.Second}); err != nil {
		t.Fatal(err)
	}
	kept, _ := reused(t, "plain")
	for _, c := range []struct {
		name string
		l    *Link
		err  error
	}{
		{"a fresh link", fresh, io.EOF}, {"part of an answer", answered, io.EOF},
		{"a timeout", kept, ErrHeadTimeout}, {"an interrupt", kept, ErrInterrupted}, {"a bad answer", kept, ErrMalformed}, {"an end in a head", kept, io.ErrUnexpectedEOF},
	} {
		if c.l.Stale(c.err) {
			t.Errorf("%s: stale", c.name)
		}
	}
}
