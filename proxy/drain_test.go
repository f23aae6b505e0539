package proxy_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/starling-lb/starling/proxy"
	"github.com/starling-lb/starling/proxy/backend"
)

// stop begins a drain that is over when the test says so.
func (r *rig) stop() (over func() proxy.Report) {
	r.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	report := make(chan proxy.Report, 1)
	go func() { report <- r.server.Stop(ctx) }()
	eventually(r.t, patience, func() string {
		if r.server.Draining() {
			return ""
		}
		return "no drain has begun"
	})
	return func() proxy.Report {
		r.t.Helper()
		cancel()
		return await(r.t, report)
	}
}

// cutNow is stop with its time over; it returns when streams are being cut.
func (r *rig) cutNow() <-chan proxy.Report {
	report := make(chan proxy.Report, 1)
	go func() { report <- r.stopNow() }()
	return report
}

// closeFrame reads a masked close frame that says 1001.
func (c *caller) closeFrame() {
	c.t.Helper()
	var f [8]byte
	for i := range f {
		b, err := c.in.ReadByte()
		if err != nil {
			c.t.Fatalf("a close frame: %q and %v", f[:i], err)
		}
		f[i] = b
	}
	if f[0] != 0x88 || f[1] != 0x82 || f[6]^f[2] != 1001>>8 || f[7]^f[3] != 1001&0xff {
		c.t.Errorf("got frame %x, want a masked close with 1001", f)
	}
}

const (
	goingAway = "\x88\x02\x03\xe9"
	text      = "\x81\x05hello"
	masked    = "\x81\x85\x01\x02\x03\x04igoho"
)

// cutOne checks the report of a drain that cut one stream.
func (r *rig) cutOne(report proxy.Report) {
	r.t.Helper()
	if report != (proxy.Report{Cut: 1}) {
		r.t.Errorf("the report is %+v, want one stream cut", report)
	}
	r.atRest(patience, backend.Drained, 1)
}

// When its time is over a WebSocket ends between two frames, and both sides
// hear why.
func TestDrainPartsWebSockets(t *testing.T) {
	for name, tc := range map[string]struct {
		sent, later         string // by the backend, before and after the drain is over
		clientSent, cliRest string // likewise
		passed              string // of later, before the close frame
		cliPassed           string
	}{
		"nothing was sent":      {},
		"between frames":        {sent: text + text, clientSent: masked},
		"within a frame":        {sent: text[:4], later: text[4:] + text, passed: text[4:]},
		"within a length":       {sent: "\x82\x7e\x01", later: "\x00" + strings.Repeat("x", 256) + text, passed: "\x00" + strings.Repeat("x", 256)},
		"within a client's":     {clientSent: masked[:3], cliRest: masked[3:] + masked, cliPassed: masked[3:]},
		"within frames of both": {sent: text[:1], later: text[1:], passed: text[1:], clientSent: masked[:7], cliRest: masked[7:], cliPassed: masked[7:]},
	} {
		t.Run(name, func(t *testing.T) {
			onEachLoop(t, nil, func(r *rig) {
				r.server.SetPartTime(patience)
				client, server := r.tunnel(upgrade, upgraded)
				server.send(tc.sent)
				client.send(tc.clientSent)
				client.expect(tc.sent)
				server.expect(tc.clientSent)
				report := r.cutNow()
				if tc.cliRest == "" { // the other direction is over at once: only then this one goes on
					server.closeFrame()
				}
				server.send(tc.later)
				client.expect(tc.passed + goingAway)
				client.end("", false)
				if tc.cliRest != "" {
					client.send(tc.cliRest)
					server.expect(tc.cliPassed)
					server.closeFrame()
				}
				server.end("", false)
				client.Close()
				server.Close()
				r.cutOne(await(t, report))
			})
		})
	}
}

// Who does not end in time is cut: it must not look like an orderly end.
func TestDrainCutsWhatDoesNotPart(t *testing.T) {
	for name, tc := range map[string]struct {
		sent         string
		reset, waits bool
	}{
		"a frame that never ends":           {text[:4], true, true},
		"no frame whose length can be told": {"\x82\x7f\xff\xff\xff\xff\xff\xff\xff\xff", true, false},
		"peers that do not close":           {text, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			onEachLoop(t, nil, func(r *rig) {
				client, server := r.tunnel(upgrade, upgraded)
				server.send(tc.sent)
				client.expect(tc.sent)
				began := time.Now()
				report := r.cutNow()
				if tc.reset {
					client.end("", true)
				} else {
					client.end(goingAway, false)
				}
				if !tc.waits {
					client.Close()
					server.closeFrame()
					server.end("", false)
					server.Close()
				}
				r.cutOne(await(t, report))
				if took := time.Since(began); took > 5*time.Second || tc.waits && took < 900*time.Millisecond {
					t.Errorf("it took %v", took)
				}
			})
		})
	}
}

// A direction that has had its close frame gets no other; the one that lacks it
// gets it in the peer's stead.
func TestDrainAddsNoSecondClose(t *testing.T) {
	const bye = "\x88\x02\x03\xe8"
	onEachLoop(t, nil, func(r *rig) {
		r.server.SetPartTime(patience)
		client, server := r.tunnel(upgrade, upgraded)
		server.send(bye)
		client.expect(bye)
		report := r.cutNow()
		client.end("", false)
		client.Close()
		server.closeFrame()
		server.end("", false)
		server.Close()
		r.cutOne(await(t, report))
	})
}

func TestDrainCutsOtherStreams(t *testing.T) {
	const events = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
	for name, tc := range map[string]struct {
		request, answer string
		want            string // after the head of the answer
		reset           bool
	}{
		"a tunnel of another protocol": {
			strings.Replace(upgrade, "WebSocket", "other", 1), strings.Replace(upgraded, "websocket", "other", 1) + "x", "x", true,
		},
		"events in chunks":       {"GET / HTTP/1.1\r\nHost: t\r\n\r\n", events + "Transfer-Encoding: chunked\r\n\r\n9\r\ndata: 1\n\n\r\n", "9\r\ndata: 1\n\n\r\n", false},
		"events until the close": {"GET / HTTP/1.1\r\nHost: t\r\n\r\n", events + "\r\ndata: 1\n\n", "data: 1\n\n", true},
		"events for HTTP/1.0":    {"GET / HTTP/1.0\r\n\r\n", events + "Transfer-Encoding: chunked\r\n\r\n9\r\ndata: 1\n\n\r\n", "data: 1\n\n", true},
		"a body of known length": {"GET / HTTP/1.1\r\nHost: t\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n123", "123", false},
	} {
		t.Run(name, func(t *testing.T) {
			onEachLoop(t, nil, func(r *rig) {
				client := r.connect(tc.request)
				server := r.arrived()
				server.send(tc.answer)
				client.answer()
				client.expect(tc.want)
				began := time.Now()
				report := r.cutNow()
				client.end("", tc.reset)
				if took := time.Since(began); took > 300*time.Millisecond*raceFactor {
					t.Errorf("it took %v", took)
				}
				r.cutOne(await(t, report))
			})
		})
	}
}

// A client that takes nothing may read on when it has been cut: what it finds
// must not look like the whole answer.
func TestDrainCutIsSeenByASlowReader(t *testing.T) {
	onEachLoop(t, nil, func(r *rig) {
		client := r.connect("GET / HTTP/1.1\r\nHost: t\r\n\r\n")
		server := r.arrived()
		server.send("HTTP/1.1 200 OK\r\n\r\n")
		client.answer()
		server.fill()
		report := r.cutNow()
		r.cutOne(await(t, report))
		if _, err := io.Copy(io.Discard, client.in); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the end is %v, want a reset", err)
		}
	})
}

// While a node drains it turns new streams away, and ends a connection after
// the answer that it owes.
func TestDrainRefusesAndCloses(t *testing.T) {
	onEachLoop(t, nil, func(r *rig) {
		const request = "GET / HTTP/1.1\r\nHost: t\r\n\r\n"
		const whole = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"
		idle := r.connect(request)
		server := r.arrived()
		server.send(whole + "ok")
		idle.answer()
		idle.expect("ok")
		eventually(t, 5*time.Second, func() string {
			if n := r.metric("starling_pool_connections", "state", "idle"); n != 1 {
				return fmt.Sprintf("%v unused connections to the backend", n)
			}
			if n := r.server.InFlight(); n != 0 { // or the first is counted among those that the drain waits for
				return fmt.Sprintf("%d streams run", n)
			}
			return ""
		})
		busy := r.connect(request)
		server.answer() // the request, on the same connection

		over := r.stop()
		idle.end("", false)
		late := r.connect(request)
		head := late.answer()
		for _, line := range []string{"HTTP/1.1 503 ", "X-Starling-Error: draining\r\n", "Retry-After: ", "Connection: close\r\n"} {
			if !strings.Contains(head, line) {
				t.Errorf("a new request is answered without %q: %q", line, head)
			}
		}
		server.send(whole + "ok")
		if head := busy.answer(); !strings.Contains(head, "Connection: close\r\n") {
			t.Errorf("the last answer does not say that the connection closes: %q", head)
		}
		busy.end("ok", false)
		if report := over(); report != (proxy.Report{Finished: 1}) {
			t.Errorf("the report is %+v, want one stream finished", report)
		}
	})
}
