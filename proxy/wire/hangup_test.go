package wire

import (
	"errors"
	"io"
	"net"
	"testing"
)

// Only a connection that waits for a request is hung up: one that has just come
// is handled, and its answer goes out.
func TestHangUp(t *testing.T) {
	inEveryWay(t, func(t *testing.T, c *Conn, far *net.TCPConn, _ *leaver) {
		l := &log{c: c, most: 2}
		l.body = func() {
			c.HangUp()
			if err := c.Write([]byte("answer"), 0); err != nil {
				t.Errorf("answer: %v", err)
			}
		}
		done := async(func() error { c.Serve(&l.q, wide(), l); return l.err })
		send(t, far, "GET / HTTP/1.1\r\n")
		eventually(t, "a head has begun", func() bool { return !c.Idle() })
		c.HangUp()
		send(t, far, "Host: h\r\n\r\n")
		receive(t, far, "answer")
		eventually(t, "idle after the request", c.Idle)
		c.HangUp()
		wants(t, await(t, done, "the end"), ErrInterrupted)
	})
}

// A request that comes in the instant of a hang-up is handled whole, or not
// looked at.
func TestHangUpInTheSameInstant(t *testing.T) {
	handled := 0
	for range 200 {
		c, far, _ := served(t, "edge")
		l := &log{c: c, most: 1}
		l.body = func() {
			if err := c.Write([]byte("answer"), 0); err != nil {
				t.Errorf("answer: %v", err)
			}
		}
		done := async(func() error { c.Serve(&l.q, wide(), l); return l.err })
		eventually(t, "idle", c.Idle)
		sent := async(func() error { _, err := io.WriteString(far, head("GET / HTTP/1.1", "Host: h")); return err })
		c.HangUp()
		if err := await(t, done, "the end"); err != nil && !errors.Is(err, ErrInterrupted) {
			t.Fatal(err)
		}
		handled += len(l.got)
		wants(t, await(t, sent, "the request"), nil)
		c.Close()
		far.Close()
	}
	t.Logf("%d of 200 were handled", handled)
}

// What was read when the hang-up came first is nobody's.
func TestHungUpBeforeTheClaim(t *testing.T) {
	c, far, _ := served(t, "plain")
	send(t, far, head("GET / HTTP/1.1", "Host: h"))
	if err := c.fill(bound{}); err != nil {
		t.Fatal(err)
	}
	c.rest()
	c.HangUp()
	var q Request
	wants(t, c.ReadRequest(&q, wide()), ErrInterrupted)
	if q.Target != nil {
		t.Errorf("read %s", q.Target)
	}
}
