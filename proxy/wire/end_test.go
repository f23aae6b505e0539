package wire

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// ways are the ways in which a connection waits and is watched.
func ways() []string { return []string{"edge", "quick", "plain", "wrapped"} } // quick: by edges on Linux, plain elsewhere

// taken is the near end of a connection that a Quick listener took, and its far one.
func taken(t testing.TB) (near net.Conn, far *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l = Quick(l)
	defer l.Close()
	dialed, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if near, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dialed.Close(); near.Close() })
	if err := dialed.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return near, dialed.(*net.TCPConn)
}

// served is a client connection that waits in that way, and the client.
func served(t testing.TB, way string) (c *Conn, far *net.TCPConn, l *leaver) {
	t.Helper()
	l = newLeaver()
	if way == "quick" {
		near, far := taken(t)
		c = NewConn(near, &Buffers{}, newWatcher(t), l)
		t.Cleanup(c.Close)
		return c, far, l
	}
	near, far := pair(t)
	switch way {
	case "edge":
		c = NewConn(near, &Buffers{}, newWatcher(t), l)
	case "plain":
		c = NewConn(near, &Buffers{}, nil, l)
	case "wrapped":
		c = NewConn(wrapped{near}, &Buffers{}, newWatcher(t), l)
	}
	if runtime.GOOS == "linux" && c.byEdges != (way == "edge") {
		t.Fatalf("%s waits by edges: %v", way, c.byEdges)
	}
	t.Cleanup(c.Close)
	return c, far, l
}

// inEveryWay runs a test for each.
func inEveryWay(t *testing.T, f func(t *testing.T, c *Conn, far *net.TCPConn, l *leaver)) {
	for _, way := range ways() {
		t.Run(way, func(t *testing.T) {
			c, far, l := served(t, way)
			f(t, c, far, l)
		})
	}
}

// exactly takes n bytes and leaves the rest.
type exactly struct {
	e    *End
	n    int
	data string
}

func (x *exactly) take() bool {
	b := x.e.Buffered()
	b = b[:min(len(b), x.n-len(x.data))]
	x.data += string(b)
	x.e.Discard(len(b))
	return len(x.data) == x.n
}

// read awaits n bytes.
func read(e *End, n int, b bound) (string, error) {
	x := &exactly{e: e, n: n}
	if len(e.Buffered()) > 0 && x.take() {
		return x.data, nil
	}
	err := e.await(x, b)
	return x.data, err
}

func TestAwait(t *testing.T) {
	inEveryWay(t, func(t *testing.T, c *Conn, far *net.TCPConn, _ *leaver) {
		long := strings.Repeat("0123456789", 50_000)
		sent := async(func() error { _, err := io.WriteString(far, long); return err })
		if got, err := read(&c.End, len(long), bound{}); err != nil || got != long {
			t.Fatalf("%d of %d bytes, %v", len(got), len(long), err)
		}
		if err := await(t, sent, "the write's end"); err != nil {
			t.Fatal(err)
		}
		send(t, far, "last")
		far.CloseWrite() // its news may come with the last bytes
		if got, err := read(&c.End, 4, bound{}); err != nil || got != "last" {
			t.Fatalf("%q, %v", got, err)
		}
		_, err := read(&c.End, 1, bound{})
		wants(t, err, io.EOF)
		_, err = read(&c.End, 1, bound{}) // and again
		wants(t, err, io.EOF)
	})
}

func TestAwaitReset(t *testing.T) {
	inEveryWay(t, func(t *testing.T, c *Conn, far *net.TCPConn, _ *leaver) {
		done := async(func() error { _, err := read(&c.End, 1, bound{}); return err })
		reset(t, far)
		wants(t, await(t, done, "the read's end"), syscall.ECONNRESET)
	})
}

// A close that comes while bytes are being used is not missed, whichever edge
// it came with.
func TestAwaitCloseWithBytes(t *testing.T) {
	for _, way := range ways() {
		t.Run(way, func(t *testing.T) {
			for i := range 100 {
				c, far, _ := served(t, way)
				go func() {
					_, _ = io.WriteString(far, "bytes")
					for range i % 10 {
						runtime.Gosched()
					}
					far.Close()
				}()
				done := async(func() error { _, err := read(&c.End, 6, bound{idle: time.Hour}); return err })
				wants(t, await(t, done, "the end"), io.EOF)
				c.Close()
			}
		})
	}
}

// The same where the close is known before anybody reads.
func TestAwaitCloseBefore(t *testing.T) {
	inEveryWay(t, func(t *testing.T, c *Conn, far *net.TCPConn, l *leaver) {
		send(t, far, "bytes")
		far.Close()
		if c.ticket != 0 {
			await(t, l.heard, "the close")
		}
		done := async(func() error { _, err := read(&c.End, 6, bound{idle: time.Hour}); return err })
		wants(t, await(t, done, "the end"), io.EOF)
	})
}

func TestAwaitIdle(t *testing.T) {
	inEveryWay(t, func(t *testing.T, c *Conn, far *net.TCPConn, _ *leaver) {
		from := time.Now()
		_, err := read(&c.End, 1, bound{idle: 30 * time.Millisecond})
		wants(t, err, ErrIdle)
		_, err = read(&c.End, 1, bound{by: time.Now().Add(30 * time.Millisecond)})
		wants(t, err, ErrIdle)
		if took := time.Since(from); took < 55*time.Millisecond {
			t.Errorf("both were over in %v", took)
		}
		send(t, far, "x") // nothing lasts of it
		if got, err := read(&c.End, 1, bound{}); err != nil || got != "x" {
			t.Errorf("%q, %v", got, err)
		}
	})
}

// The bound is the time without a byte, not a total.
func TestIdleIsNoTotal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := net.Pipe()
		e := newEnd(a, &Buffers{})
		defer b.Close()
		defer e.Close()
		go func() {
			for range 20 {
				<-time.After(50 * time.Second)
				_, _ = b.Write([]byte("x"))
			}
		}()
		if got, err := read(&e, 20, bound{idle: time.Minute}); err != nil || len(got) != 20 {
			t.Fatalf("%d bytes, %v", len(got), err)
		}
		from := time.Now()
		_, err := read(&e, 1, bound{idle: time.Minute})
		if took := time.Since(from); !errors.Is(err, ErrIdle) || took < 52*time.Second || took > time.Minute {
			t.Errorf("silence: %v after %v", err, took)
		}
	})
}

func TestWriteIdleIsNoTotal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := net.Pipe()
		e := newEnd(a, &Buffers{})
		defer e.Close()
		defer b.Close()
		go func() {
			var one [1]byte
			for range 20 {
				<-time.After(50 * time.Second)
				_, _ = b.Read(one[:])
			}
		}()
		if err := e.Write(make([]byte, 20), time.Minute); err != nil {
			t.Fatal(err)
		}
		from := time.Now()
		err := e.Write([]byte("x"), time.Minute)
		if took := time.Since(from); !errors.Is(err, ErrIdle) || took < 52*time.Second || took > time.Minute {
			t.Errorf("nothing taken: %v after %v", err, took)
		}
	})
}

// Deadlines cost a call each: one that is close enough is left alone.
func TestLazyDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := scripted()
		e := newEnd(s, &Buffers{})
		for range 100 {
			s.pieces = []string{"x"}
			if err := errors.Join(e.fill(bound{idle: time.Minute}), e.Write([]byte("x"), time.Minute)); err != nil {
				t.Fatal(err)
			}
			e.Discard(1)
		}
		if s.readBys != 1 || s.writeBys != 1 {
			t.Errorf("%d and %d deadlines for 100 reads and writes at once", s.readBys, s.writeBys)
		}
		<-time.After(10 * time.Second)
		s.pieces = []string{"x"}
		if err := errors.Join(e.fill(bound{idle: time.Minute}), e.Write([]byte("x"), time.Minute)); err != nil || s.readBys != 2 || s.writeBys != 2 {
			t.Errorf("10s later %d and %d, %v", s.readBys, s.writeBys, err)
		}
	})
}

func TestRenew(t *testing.T) {
	now := time.Unix(1000, 0)
	at := func(s int) time.Time { return now.Add(time.Duration(s) * time.Second) }
	for _, c := range []struct {
		stands, want time.Time
		renewed      bool
	}{
		{time.Time{}, time.Time{}, false}, {time.Time{}, at(1), true}, {at(1), time.Time{}, true},
		{at(1), at(1), false}, {at(1), at(9), false}, {at(1), at(11), false}, {at(1), at(12), true}, {at(2), at(1), true},
	} {
		var stands int64
		renew(&stands, c.stands, 0)
		before := stands
		if got := renew(&stands, c.want, 10*time.Second); got != c.renewed || got != (stands != before) {
			t.Errorf("renew(%v, %v) = %v", c.stands, c.want, got)
		}
	}
}

// Whenever an interrupt comes, the read ends by it: a deadline that the reader
// renews at that moment does not undo it.
func TestInterruptAReader(t *testing.T) {
	for _, way := range ways() {
		t.Run(way, func(t *testing.T) {
			for range 200 {
				c, far, _ := served(t, way)
				go func() { // bytes that keep the reader renewing
					for range 50 {
						if _, err := far.Write([]byte("x")); err != nil {
							return
						}
						runtime.Gosched()
					}
				}()
				done := async(func() error {
					for i := 0; ; i++ {
						if _, err := read(&c.End, 1, bound{idle: time.Duration(1+i%2) * time.Hour}); err != nil {
							return err
						}
					}
				})
				for range rand.IntN(60) {
					runtime.Gosched()
				}
				c.Interrupt()
				wants(t, await(t, done, "the interrupted read"), ErrInterrupted)
				_, err := read(&c.End, 1, bound{idle: time.Hour})
				wants(t, err, ErrInterrupted)
				wants(t, c.Write([]byte("x"), time.Hour), ErrInterrupted)
				c.Close()
			}
		})
	}
}

// hooked is a connection whose deadlines tell when they are set.
type hooked struct {
	*script
	either, read, write func()
}

func (h *hooked) SetDeadline(time.Time) error      { h.either(); return nil }
func (h *hooked) SetReadDeadline(time.Time) error  { h.read(); return nil }
func (h *hooked) SetWriteDeadline(time.Time) error { h.write(); return nil }

// The same at the very moments that matter: an interrupt between the reader's
// deadline and its read, and a reader that sets its deadline in the middle of
// an interrupt.
func TestInterruptAtTheDeadline(t *testing.T) {
	nothing := func() {}
	for name, stop := range map[string]func(*End){"interrupt": (*End).Interrupt, "stop reading": (*End).StopReading} {
		h := &hooked{scripted("x", "y"), nothing, nothing, nothing}
		e := newEnd(h, &Buffers{})
		h.read = func() { h.read = nothing; stop(&e) }
		wants(t, e.fill(bound{idle: time.Minute}), ErrInterrupted)

		h = &hooked{scripted("x", "y"), nothing, nothing, nothing}
		e2 := newEnd(h, &Buffers{})
		tried := false
		try := func() {
			h.either, h.read, tried = nothing, nothing, true
			if err := e2.fill(bound{idle: time.Minute}); err != ErrInterrupted {
				t.Errorf("%s: the reader's deadline stands: %v", name, err)
			}
		}
		h.either, h.read = try, try
		if stop(&e2); !tried {
			t.Errorf("%s sets no deadline", name)
		}
	}
	h := &hooked{scripted(), nothing, nothing, nothing}
	e := newEnd(h, &Buffers{})
	h.write = func() { h.write = nothing; e.Interrupt() }
	wants(t, e.Write([]byte("x"), time.Minute), ErrInterrupted)
	if len(h.writes) > 0 {
		t.Errorf("written all the same: %q", h.writes)
	}
}

func TestInterruptAWriter(t *testing.T) {
	big := make([]byte, 64<<10)
	for range 100 {
		c, far, _ := served(t, "plain")
		go func() { // takes some, so that the writer keeps renewing
			_, _ = io.CopyN(io.Discard, far, rand.Int64N(1<<20))
		}()
		done := async(func() error {
			for i := 0; ; i++ {
				if err := c.Write(big, time.Duration(1+i%2)*time.Hour); err != nil {
					return err
				}
			}
		})
		for range rand.IntN(100) {
			runtime.Gosched()
		}
		c.Interrupt()
		wants(t, await(t, done, "the interrupted write"), ErrInterrupted)
		c.Close()
	}
}

func TestWriteIdle(t *testing.T) {
	c, _, _ := served(t, "plain")
	if err := c.Write(make([]byte, 64<<20), 50*time.Millisecond); !errors.Is(err, ErrIdle) {
		t.Error(err)
	}
}

func TestStopReading(t *testing.T) {
	inEveryWay(t, func(t *testing.T, c *Conn, far *net.TCPConn, _ *leaver) {
		for _, b := range []bound{{}, {idle: time.Hour}, {by: time.Now().Add(time.Hour)}} {
			done := async(func() error { _, err := read(&c.End, 1, b); return err })
			runtime.Gosched()
			c.StopReading()
			wants(t, await(t, done, "the stopped read"), ErrInterrupted)
			send(t, far, "x")
			_, err := read(&c.End, 1, b)
			wants(t, err, ErrInterrupted)
			if err := c.Write([]byte("y"), time.Minute); err != nil {
				t.Fatal("writes stopped too: ", err)
			}
			receive(t, far, "y")
			c.ResumeReading()
			c.ResumeReading()
			if got, err := read(&c.End, 1, b); err != nil || got != "x" {
				t.Fatalf("after it resumed: %q, %v", got, err)
			}
		}
		c.Interrupt()
		c.StopReading()
		c.ResumeReading()
		_, err := read(&c.End, 1, bound{})
		wants(t, err, ErrInterrupted) // resuming does not undo an interrupt
	})
}

// Nothing is held while nothing is buffered, and nothing is lost when a buffer
// grows or moves.
func TestEndBuffers(t *testing.T) {
	s := scripted("abc", strings.Repeat("x", smallBuffer))
	e := newEnd(s, &Buffers{})
	e.Rest()
	if e.Full() || len(e.Buffered()) != 0 {
		t.Error("begins with something")
	}
	if err := e.fill(bound{}); err != nil || string(e.Buffered()) != "abc" {
		t.Fatalf("%q, %v", e.Buffered(), err)
	}
	e.Discard(1)
	e.Rest() // something is in it
	if err := e.fill(bound{}); err != nil || e.w != smallBuffer || e.r != 1 {
		t.Fatalf("%d to %d, %v", e.r, e.w, err)
	}
	if err := e.fill(bound{}); err != nil || !e.Full() || string(e.Buffered()[:3]) != "bcx" {
		t.Fatalf("the room that was used up is not used again: %.3q, %v", e.Buffered(), err)
	}
	func() {
		defer func() {
			if said, _ := recover().(string); !strings.HasPrefix(said, "BUG:") {
				t.Errorf("reading into a full buffer: %q", said)
			}
		}()
		_ = e.fill(bound{})
	}()
	e.Reserve(smallBuffer + 1)
	e.Reserve(1)
	if len(e.buf) != bodyBuffer || string(e.Buffered()) != "bc"+strings.Repeat("x", smallBuffer-2) {
		t.Errorf("%d bytes hold %.3q…", len(e.buf), e.Buffered())
	}
	e.Discard(len(e.Buffered()))
	e.Rest()
	if e.buf != nil {
		t.Error("a buffer is held for nothing")
	}
	e.Reserve(1)
	e.Close()
	if e.buf != nil || !s.closed {
		t.Errorf("closed %v, buffer given back %v", s.closed, e.buf == nil)
	}
}

func TestEndings(t *testing.T) {
	inEveryWay(t, func(t *testing.T, c *Conn, far *net.TCPConn, _ *leaver) {
		if _, ok := c.nc.(wrapped); ok {
			wants(t, c.CloseWrite(), errors.ErrUnsupported)
			return
		}
		if err := c.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if _, err := far.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("after CloseWrite the peer reads %v", err)
		}
		send(t, far, "x")
		if got, err := read(&c.End, 1, bound{}); err != nil || got != "x" {
			t.Errorf("after CloseWrite: %q, %v", got, err)
		}
		c.Reset()
		c.Close()
	})
	c, far, _ := served(t, "plain")
	c.Reset()
	_, err := far.Read(make([]byte, 1))
	wants(t, err, syscall.ECONNRESET)
}
