package wire

import (
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// linked is a link that waits in that way, and the backend's end of it.
func linked(t testing.TB, way string) (*Link, *net.TCPConn) {
	t.Helper()
	near, far := pair(t)
	var l *Link
	switch way {
	case "edge":
		l = NewLink(near, &Buffers{}, newWatcher(t))
	case "plain":
		l = NewLink(near, &Buffers{}, nil)
	case "wrapped":
		l = NewLink(wrapped{near}, &Buffers{}, newWatcher(t))
	}
	t.Cleanup(l.Close)
	return l, far
}

func overEveryLink(t *testing.T, f func(t *testing.T, l *Link, far *net.TCPConn)) {
	for _, way := range []string{"edge", "plain", "wrapped"} { // backends are dialed: none is quick
		t.Run(way, func(t *testing.T) {
			l, far := linked(t, way)
			f(t, l, far)
		})
	}
}

const anAnswer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"

// exchange sends a request and reads the head of its answer.
func exchange(l *Link, request string) (p *Response, err error) {
	if err := l.Send([]byte(request), true, time.Minute); err != nil {
		return nil, err
	}
	p = &Response{}
	return p, l.ReadResponse(p, false, 15*time.Second, 64<<10)
}

func TestReadResponse(t *testing.T) {
	overEveryLink(t, func(t *testing.T, l *Link, far *net.TCPConn) {
		backend := async(func() error {
			for _, answer := range []string{"HTTP/1.1 103 x\r\n\r\nHTTP/1.1 100 x\r\n\r\n" + anAnswer + "ok", anAnswer + "ok"} {
				if _, err := io.ReadFull(far, make([]byte, 7)); err != nil {
					return err
				}
				if _, err := io.WriteString(far, answer); err != nil {
					return err
				}
			}
			return nil
		})
		var got []int
		p, err := exchange(l, "request")
		for err == nil && p.Interim() {
			got = append(got, p.Status)
			err = l.ReadResponse(p, false, time.Minute, 64<<10)
		}
		if err != nil || len(got) != 2 || got[0] != 103 || got[1] != 100 || p.Status != 200 || p.Length != 2 {
			t.Fatalf("interim %v, then %d: %v", got, p.Status, err)
		}
		if body, err := read(&l.End, 2, bound{}); err != nil || body != "ok" {
			t.Fatalf("body %q, %v", body, err)
		}
		if p, err = exchange(l, "request"); err != nil || p.Status != 200 { // the next on the same link
			t.Fatal(err)
		}
		if err := await(t, backend, "the backend's end"); err != nil {
			t.Fatal(err)
		}
	})
}

// A request that is not whole goes out at once: its answer may come only after
// the rest.
func TestSendPart(t *testing.T) {
	overEveryLink(t, func(t *testing.T, l *Link, far *net.TCPConn) {
		if err := l.Send([]byte("part"), false, time.Minute); err != nil {
			t.Fatal(err)
		}
		receive(t, far, "part")
	})
}

func TestSendLarge(t *testing.T) {
	overEveryLink(t, func(t *testing.T, l *Link, far *net.TCPConn) {
		request := strings.Repeat("0123456789", 1<<20)
		backend := async(func() error {
			if _, err := io.CopyN(io.Discard, far, int64(len(request))); err != nil {
				return err
			}
			_, err := io.WriteString(far, anAnswer)
			return err
		})
		if _, err := exchange(l, request); err != nil {
			t.Error(err)
		}
		if err := await(t, backend, "the backend's end"); err != nil {
			t.Fatal(err)
		}
	})
}

func TestReadResponseFailures(t *testing.T) {
	for _, c := range []struct {
		name, in string
		end      func(testing.TB, *net.TCPConn)
		want     error
	}{
		{"closed before an answer", "", leavings()["half close"], io.EOF},
		{"closed in a head", "HTTP/1.1 200", leavings()["half close"], io.ErrUnexpectedEOF},
		{"reset", "", reset, syscall.ECONNRESET},
		{"silence", "", nil, ErrHeadTimeout},
		{"silence in a head", "HTTP/1.1 200", nil, ErrHeadTimeout},
		{"malformed", "HTTP/1.1 20\r\n\r\n", nil, ErrMalformed},
		{"too large", head("HTTP/1.1 200 OK", "X: "+strings.Repeat("x", 1000)), nil, ErrTooLarge},
		{"too large before its end", strings.Repeat("x", 1000), nil, ErrTooLarge},
	} {
		t.Run(c.name, func(t *testing.T) {
			overEveryLink(t, func(t *testing.T, l *Link, far *net.TCPConn) {
				if err := l.Send([]byte("request"), true, time.Minute); err != nil {
					t.Fatal(err)
				}
				backend := async(func() error {
					_, err := io.ReadFull(far, make([]byte, 7))
					_, _ = io.WriteString(far, c.in)
					if c.end != nil {
						c.end(t, far)
					}
					return err
				})
				var p Response
				wants(t, l.ReadResponse(&p, false, 50*time.Millisecond, 1000), c.want)
				if err := await(t, backend, "the backend's end"); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

// A backend that takes nothing of a request is given up.
func TestSendToTheDeaf(t *testing.T) {
	overEveryLink(t, func(t *testing.T, l *Link, _ *net.TCPConn) {
		err := l.Send(make([]byte, 64<<20), true, 50*time.Millisecond)
		if err == nil {
			err = await(t, async(func() error { return l.ReadResponse(&Response{}, false, 0, 1000) }), "the wait's end")
		}
		if !errors.Is(err, ErrIdle) && !errors.Is(err, ErrHeadTimeout) {
			t.Errorf("error %v", err)
		}
	})
}

func TestInterruptALink(t *testing.T) {
	overEveryLink(t, func(t *testing.T, l *Link, far *net.TCPConn) {
		done := async(func() error { _, err := exchange(l, "request"); return err })
		receive(t, far, "request")
		l.Interrupt()
		wants(t, await(t, done, "the interrupted wait"), ErrInterrupted)
		_, err := exchange(l, "request")
		wants(t, err, ErrInterrupted)
	})
}

func TestIdleIsAStack(t *testing.T) {
	idle := NewIdle(2)
	defer idle.Close()
	if idle.Get() != nil {
		t.Fatal("begins with something")
	}
	var links []*Link
	for range 3 {
		l, _ := linked(t, "edge")
		l.Reserve(1)
		links = append(links, l)
		idle.Put(l, time.Now())
	}
	if idle.Len() != 2 || links[2].buf != nil || links[0].buf != nil {
		t.Errorf("%d kept of 2", idle.Len())
	}
	if err := links[2].Write([]byte("x"), time.Minute); err == nil {
		t.Error("the one too many is open")
	}
	if a, b, c := idle.Get(), idle.Get(), idle.Get(); a != links[1] || b != links[0] || c != nil || !a.Reused {
		t.Error("the last one put does not come out first")
	}
}

// A link that cannot be used does not come out: the backend closed it, or sent
// what nobody asked for.
func TestIdlePassesOverTheUnusable(t *testing.T) {
	for _, way := range []string{"edge", "plain"} {
		for name, end := range map[string]func(testing.TB, *net.TCPConn){
			"close": leavings()["close"], "half close": leavings()["half close"], "reset": reset,
			"unasked": func(t testing.TB, c *net.TCPConn) { send(t, c, "HTTP/1.1 408 x\r\n\r\n") },
		} {
			idle := NewIdle(10)
			good, _ := linked(t, way)
			idle.Put(good, time.Now())
			bad, far := linked(t, way)
			idle.Put(bad, time.Now())
			end(t, far)
			eventually(t, "the news came", func() bool { return !bad.open() })
			if got := idle.Get(); got != good {
				t.Errorf("%s, %s: got %p of good %p and bad %p", way, name, got, good, bad)
			}
			if bad.Write([]byte("x"), time.Minute) == nil {
				t.Errorf("%s, %s: it was left open", way, name)
			}
			idle.Put(good, time.Now())
			again, far := linked(t, way)
			idle.Put(again, time.Now())
			end(t, far)
			eventually(t, "the news came", func() bool { return !again.open() })
			if idle.Sweep(0); idle.Len() != 1 {
				t.Errorf("%s, %s: %d left by a sweep", way, name, idle.Len())
			}
			idle.Close()
		}
	}
}

func TestIdleSweepsTheOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		idle := NewIdle(10)
		var links []*Link
		for range 3 {
			near, far := net.Pipe()
			defer far.Close()
			l := NewLink(near, &Buffers{}, nil)
			links = append(links, l)
			idle.Put(l, time.Now())
			<-time.After(time.Minute)
		}
		idle.Sweep(0)
		idle.Sweep(3 * time.Minute)
		if idle.Len() != 3 {
			t.Errorf("%d are young enough", idle.Len())
		}
		idle.Sweep(90 * time.Second)
		if got := idle.Get(); idle.Len() != 0 || got != links[2] {
			t.Errorf("another than the youngest is left, of %d", idle.Len()+1)
		}
		links[2].Close()
	})
}

func TestIdleClosed(t *testing.T) {
	idle := NewIdle(10)
	kept, _ := linked(t, "edge")
	late, _ := linked(t, "edge")
	cut, _ := linked(t, "edge")
	idle.Put(kept, time.Now())
	cut.Interrupt()
	idle.Put(cut, time.Now())
	if idle.Len() != 1 {
		t.Error("an interrupted link was kept")
	}
	idle.Close()
	idle.Close()
	idle.Put(late, time.Now())
	for _, l := range []*Link{kept, late, cut} {
		if l.Write([]byte("x"), time.Minute) == nil {
			t.Error("a link is open after Close")
		}
	}
	if idle.Get() != nil || idle.Len() != 0 {
		t.Error("a closed stock gives links")
	}
}
