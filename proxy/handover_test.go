package proxy_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/starling-lb/starling/proxy"
	"github.com/starling-lb/starling/proxy/backend"
)

const ask = "GET / HTTP/1.1\r\nHost: h\r\n\r\n"

// While a server pauses, who connects waits, and is served after it: whoever was taken
// in before, and every one that came just then.
func TestPauseDropsNobody(t *testing.T) {
	t.Run("quick", func(t *testing.T) { pausing(t, newRig(t, false, nil)) })
	t.Run("as with TLS", func(t *testing.T) { // by package net's own listener
		r := &rig{}
		r.listens = func(l net.Listener) net.Listener { return waiting{l.(*net.TCPListener)} }
		pausing(t, r.build(t, nil, nil))
	})
}

// waiting is a TCP listener of which nobody sees that it is one.
type waiting struct{ *net.TCPListener }

func pausing(t *testing.T, r *rig) {
	ctx, cancel := context.WithCancel(context.Background())
	done, served := make(chan struct{}), make(chan struct{}, 1)
	var clients, answers sync.WaitGroup
	answers.Go(func() {
		for {
			select {
			case a := <-r.arrivals:
				a.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
				a.finish()
				select {
				case served <- struct{}{}:
				default:
				}
			case <-done:
				return
			}
		}
	})
	for range 8 {
		clients.Go(func() {
			for ctx.Err() == nil {
				if err := once(r.server.Addrs()[0]); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for range 60 {
		if err := r.server.Pause(); err != nil {
			t.Fatal(err)
		}
		r.server.Resume()
		await(t, served) // so that the next one comes at another moment
	}
	if err := r.server.Pause(); err != nil {
		t.Fatal(err)
	}
	waits := r.connect(ask)
	r.server.Resume()
	waits.expect("HTTP/1.1 200 OK\r\n")
	waits.finish()
	cancel()
	clients.Wait()
	close(done)
	answers.Wait()
}

// once asks on a connection of its own.
func once(at string) error {
	c, err := net.Dial("tcp", at)
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	if _, err := c.Write([]byte("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")); err != nil {
		return err
	}
	var all strings.Builder
	for b := make([]byte, 4096); ; {
		n, err := c.Read(b)
		all.Write(b[:n])
		if err != nil {
			break
		}
	}
	if text := all.String(); !strings.HasPrefix(text, "HTTP/1.1 200") || !strings.HasSuffix(text, "ok") {
		return fmt.Errorf("the answer is %q", text)
	}
	return nil
}

// A socket that cannot be made to wait is not handed over, and says so.
func TestPauseNeedsPatience(t *testing.T) {
	r := newRig(t, true, nil)
	if err := r.server.Pause(); err == nil || !strings.Contains(err.Error(), "cannot be made to wait") {
		t.Errorf("got %v", err)
	}
	waits := r.connect(ask)
	r.arrived().finish()
	waits.finish()
}

// Who leaves serves what its connections still ask, each once, and counts what ends.
// New connections are another's.
func TestLeaveServesKeptConnections(t *testing.T) {
	r := newRig(t, false, nil)
	const whole = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok" // the backend's connection
	kept := r.connect(ask)
	r.arrived().send(whole)
	kept.answer()
	kept.expect("ok")
	runs := r.connect(ask)
	slow := r.arrived()
	slow.send(whole[:len(whole)-1])
	runs.answer()
	eventually(t, patience, func() string { // the client has the answer before it is counted
		if n := r.server.InFlight(); n != 1 {
			return fmt.Sprintf("%d streams run", n)
		}
		return ""
	})
	at := r.server.Addrs()[0]
	report := make(chan proxy.Report, 1)
	go func() { report <- r.server.Leave(context.Background(), patience) }()
	eventually(t, patience, func() string {
		c, err := net.Dial("tcp", at)
		if err != nil {
			return ""
		}
		_ = c.Close()
		return "connections are still taken in"
	})
	kept.send(ask)
	r.arrived().send(whole)
	if head := kept.answer(); !strings.Contains(head, "200 OK") || !strings.Contains(head, "Connection: close") {
		t.Errorf("the answer on a kept connection: %q", head)
	}
	kept.end("ok", false)
	slow.send("k")
	runs.expect("ok")
	runs.finish() // else its next request is waited for
	if got := await(t, report); got != (proxy.Report{Finished: 2}) {
		t.Errorf("the report is %+v, want 2 streams finished", got)
	}
	if by := r.server.Bequest(); by[proxy.End{Pool: "p", Backend: "b1", Reason: backend.Done}] != 2 || len(by) != 1 {
		t.Errorf("counted %v", by)
	}
}

// What ends while nobody takes connections in is counted for the one that does so later,
// and for nobody where nothing comes of it.
func TestPauseCountsForTheNext(t *testing.T) {
	r := newRig(t, false, nil)
	const whole = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"
	kept := r.connect(ask)
	for i := range 3 {
		if i > 0 {
			if err := r.server.Pause(); err != nil {
				t.Fatal(err)
			}
			kept.send(ask)
		}
		r.arrived().send(whole)
		kept.answer()
		kept.expect("ok")
		eventually(t, patience, func() string {
			if n := r.server.InFlight(); n != 0 {
				return fmt.Sprintf("%d streams run", n)
			}
			return ""
		})
		if by := r.server.Bequest(); i > 0 && (by[proxy.End{Pool: "p", Backend: "b1", Reason: backend.Done}] != 1 || len(by) != 1) {
			t.Errorf("counted %v in pause %d", by, i)
		}
		if i == 1 {
			r.server.Resume()
		}
	}
	report := make(chan proxy.Report, 1)
	go func() { report <- r.server.Leave(context.Background(), time.Millisecond) }()
	if got := await(t, report); got != (proxy.Report{Finished: 1}) {
		t.Errorf("the report is %+v, want the stream that ended since the pause", got)
	}
}

// A stream that began before its server left does not say that its connection ends. Who
// asks on there, when it has ended at last, is served; a connection is only closed
// after a silence.
func TestLeaveServesTheNextTurn(t *testing.T) {
	r := newRig(t, false, nil)
	const whole = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok" // the backend's connection
	silent := r.connect(ask)
	r.arrived().send(whole)
	silent.answer()
	silent.expect("ok")
	long := r.connect(ask)
	slow := r.arrived()
	slow.send(whole[:len(whole)-1])
	if head := long.answer(); strings.Contains(head, "Connection: close") {
		t.Errorf("before it leaves: %q", head)
	}
	report := make(chan proxy.Report, 1)
	go func() { report <- r.server.Leave(context.Background(), time.Second) }()
	silent.end("", false) // the grace is over
	slow.send("k")
	long.expect("ok")
	long.send(ask)
	r.arrived().send(whole)
	if head := long.answer(); !strings.Contains(head, "200 OK") || !strings.Contains(head, "Connection: close") {
		t.Errorf("the next turn: %q", head)
	}
	long.end("ok", false)
	if got := await(t, report); got.Cut != 0 || got.Finished < 2 { // the first one may be counted after it left
		t.Errorf("the report is %+v, want 2 streams finished", got)
	}
}
