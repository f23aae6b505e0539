package wire

import (
	"io"
	"net"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// wide are limits that only a broken test meets.
func wide() HeadLimits {
	return HeadLimits{Idle: 15 * time.Second, Total: 15 * time.Second, Bytes: 64 << 10}
}

// log is a handler that keeps what came, and goes on while it may.
type log struct {
	c      *Conn
	q      Request
	most   int    // ends after so many; 0: never
	body   func() // reads a request's body, where it may read
	got    []string
	err    error
	within []bool // handled inside a wait
}

func (l *log) Handle(err error) bool {
	if l.err = err; err != nil {
		return false
	}
	l.got = append(l.got, summary(&l.q))
	l.within = append(l.within, l.c.within)
	if l.body != nil {
		l.body()
	}
	return len(l.got) != l.most
}

func TestReadRequest(t *testing.T) {
	inEveryWay(t, func(t *testing.T, c *Conn, far *net.TCPConn, _ *leaver) {
		var q Request
		send(t, far, head("POST /a HTTP/1.1", "Host: h", "Content-Length: 4")+"body"+head("GET /b HTTP/1.1", "Host: h"))
		if err := c.ReadRequest(&q, wide()); err != nil || summary(&q) != "POST /a h 4" {
			t.Fatalf("%q, %v", summary(&q), err)
		}
		if got, err := read(&c.End, 4, bound{}); err != nil || got != "body" {
			t.Fatalf("the body: %q, %v", got, err)
		}
		if err := c.ReadRequest(&q, wide()); err != nil || summary(&q) != "GET /b h 0" {
			t.Fatalf("%q, %v", summary(&q), err)
		}
	})
}

// Requests that come in any pieces are handled one by one, in order; the last
// is followed by the client's close.
func TestServe(t *testing.T) {
	const all = "GET /1 HTTP/1.1\r\nHost: h\r\n\r\n\r\nGET /2 HTTP/1.1\r\nHost: h\r\n\r\nHEAD /3 HTTP/1.1\r\nHost: h\r\n\r\n"
	const want = "GET /1 h 0|GET /2 h 0|HEAD /3 h 0"
	inEveryWay(t, func(t *testing.T, c *Conn, far *net.TCPConn, _ *leaver) {
		if err := far.SetNoDelay(true); err != nil {
			t.Fatal(err)
		}
		go func() {
			for p := all; len(p) > 0; p = p[min(7, len(p)):] {
				_, _ = io.WriteString(far, p[:min(7, len(p))])
				runtime.Gosched()
			}
			far.CloseWrite()
		}()
		l := &log{c: c}
		c.Serve(&l.q, wide(), l)
		if got := strings.Join(l.got, "|"); got != want || l.err != io.EOF {
			t.Errorf("handled %s, then %v", got, l.err)
		}
		if c.Rest(); c.buf != nil {
			t.Error("something is left in the buffer")
		}
	})
}

// Requests that came at once are all handled, and what follows the last one
// that may be stays.
func TestServePipelined(t *testing.T) {
	inEveryWay(t, func(t *testing.T, c *Conn, far *net.TCPConn, _ *leaver) {
		send(t, far, strings.Repeat(head("GET / HTTP/1.1", "Host: h"), 50)+"rest")
		l := &log{c: c, most: 50}
		c.Serve(&l.q, wide(), l)
		if len(l.got) != 50 || l.err != nil {
			t.Errorf("%d handled, %v", len(l.got), l.err)
		}
		if got := string(c.Buffered()); got != "rest" {
			t.Errorf("left: %q", got)
		}
	})
}

// A request whose body is still to come is handled where reading is possible.
func TestServeBodies(t *testing.T) {
	const want = "POST /1 h 4|POST /2 h 4|POST /3 h -1|GET /4 h 0 upgrade=x"
	inEveryWay(t, func(t *testing.T, c *Conn, far *net.TCPConn, _ *leaver) {
		l := &log{c: c, most: 4}
		bodies := []string{"1111", "2222", "0\r\n\r\n", "tunnel"}
		l.body = func() {
			want := bodies[len(l.got)-1]
			if len(l.got) == 4 {
				send(t, far, want)
			}
			if len(c.Buffered()) < len(want) && l.within[len(l.got)-1] {
				t.Errorf("request %d is handled where nothing can be read", len(l.got))
				return
			}
			if body, err := read(&c.End, len(want), bound{idle: 10 * time.Second}); err != nil || body != want {
				t.Errorf("body %d is %q, %v", len(l.got), body, err)
			}
		}
		go func() {
			_, _ = io.WriteString(far, head("POST /1 HTTP/1.1", "Host: h", "Content-Length: 4"))
			_, _ = io.WriteString(far, "11")
			_, _ = io.WriteString(far, "11")
			_, _ = io.WriteString(far, head("POST /2 HTTP/1.1", "Host: h", "Content-Length: 4")+"2222")
			_, _ = io.WriteString(far, head("POST /3 HTTP/1.1", "Host: h", "Transfer-Encoding: chunked")+"0\r\n\r\n")
			_, _ = io.WriteString(far, head("GET /4 HTTP/1.1", "Host: h", "Connection: upgrade", "Upgrade: x"))
		}()
		c.Serve(&l.q, wide(), l)
		if got := strings.Join(l.got, "|"); got != want || l.err != nil {
			t.Errorf("handled %s, %v", got, l.err)
		}
	})
}

// A small body that is there already costs no other goroutine: its request is
// handled within the wait. One that is not is handled outside.
func TestServeBodiesWithin(t *testing.T) {
	const size = smallBuffer + 5000
	for _, c := range []struct {
		name   string
		length int
		within bool
	}{{"there", size, true}, {"in part", size + 1, false}, {"large", bodyBuffer + 1, false}} {
		inEveryWay(t, func(t *testing.T, conn *Conn, far *net.TCPConn, _ *leaver) {
			l := &log{c: conn, most: 1}
			send(t, far, "GET /0 HTTP/1.1\r\n") // the wait begins before the rest comes
			done := async(func() error { conn.Serve(&l.q, wide(), l); return l.err })
			eventually(t, "it waits", func() bool { return !conn.Idle() })
			send(t, far, "Host: h\r\nContent-Length: "+strconv.Itoa(c.length)+"\r\n\r\n"+strings.Repeat("x", size))
			if err := await(t, done, "the request"); err != nil || len(l.within) != 1 {
				t.Fatalf("%s: %d handled, %v", c.name, len(l.within), err)
			}
			if l.within[0] && !(c.within && conn.byEdges) {
				t.Errorf("%s: handled within the wait", c.name)
			}
			body, err := read(&conn.End, size, bound{idle: 10 * time.Second})
			if err != nil || body != strings.Repeat("x", size) {
				t.Errorf("%s: %d bytes of the body, %v", c.name, len(body), err)
			}
		})
	}
}

func TestServeFailures(t *testing.T) {
	for _, c := range []struct {
		name, in string
		limit    int
		want     error
	}{
		{"closed between requests", "", 100, io.EOF},
		{"closed after empty lines", "\r\n", 100, io.EOF},
		{"closed in a head", "GET / HTTP/1.1\r\nHo", 100, io.ErrUnexpectedEOF},
		{"empty lines", "\r\n\r\n\r\n", 100, ErrMalformed},
		{"bare CRs before a request", "\r\r" + head("GET / HTTP/1.1", "Host: h"), 100, ErrMalformed},
		{"a bare LF before a request", "\n" + head("GET / HTTP/1.1", "Host: h"), 100, ErrMalformed},
		{"two empty lines", "\r\n\r\n" + head("GET / HTTP/1.1", "Host: h"), 100, nil},
		{"malformed", head("GET / HTTP/1.1"), 100, ErrMalformed},
		{"as many lines as may be", head("GET / HTTP/1.1", "Host: h"+strings.Repeat("\r\nx:", maxFields-1)), 1 << 20, nil},
		{"too many lines", head("GET / HTTP/1.1", "Host: h"+strings.Repeat("\r\nx:", maxFields)), 1 << 20, ErrTooLarge},
		{"LF alone, without waiting for more", "GET / HTTP/1.1\n\n", 100, ErrMalformed},
		{"too large", head("GET / HTTP/1.1", "Host: h"), 26, ErrTooLarge},
		{"too large before its end", strings.Repeat("x", 27), 27, ErrTooLarge},
		{"as large as it may be", head("GET / HTTP/1.1", "Host: h"), 27, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			inEveryWay(t, func(t *testing.T, conn *Conn, far *net.TCPConn, _ *leaver) {
				send(t, far, c.in)
				if c.want == io.EOF || c.want == io.ErrUnexpectedEOF {
					far.CloseWrite()
				}
				var q Request
				if err := conn.ReadRequest(&q, HeadLimits{Bytes: c.limit}); err != c.want && !(c.want == ErrMalformed && strings.HasPrefix(err.Error(), ErrMalformed.Error())) {
					t.Errorf("error %v, want %v", err, c.want)
				}
			})
		})
	}
}

// The buffer grows with a head, up to the limit, and is given back after it.
func TestLargestHead(t *testing.T) {
	inEveryWay(t, func(t *testing.T, c *Conn, far *net.TCPConn, _ *leaver) {
		for _, over := range []int{0, 1} {
			h := "GET / HTTP/1.1\r\nHost: h\r\nCookie: "
			h += strings.Repeat("x", wide().Bytes+over-len(h)-4) + "\r\n\r\n"
			sent := async(func() error { _, err := io.WriteString(far, h); return err })
			var q Request
			switch err := c.ReadRequest(&q, wide()); over {
			case 0:
				if err != nil || len(q.raw) != wide().Bytes {
					t.Fatalf("a head of %d bytes: %v", len(h), err)
				}
				c.Rest()
				if c.buf != nil {
					t.Error("its buffer is held")
				}
			case 1:
				wants(t, err, ErrTooLarge)
			}
			if err := await(t, sent, "the write's end"); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// fed is a connection in a bubble of fake time, to which pieces come, each
// after a while; end waits for whoever sends them.
func fed(every time.Duration, pieces []string) (c *Conn, end func()) {
	near, far := net.Pipe()
	c = NewConn(near, &Buffers{}, nil, newLeaver())
	var feeder sync.WaitGroup
	feeder.Go(func() {
		for _, p := range pieces {
			<-time.After(every)
			if _, err := io.WriteString(far, p); err != nil {
				return
			}
		}
	})
	return c, func() { c.Close(); feeder.Wait(); far.Close() }
}

func TestHeadTimeouts(t *testing.T) {
	limits := HeadLimits{Idle: time.Minute, Total: 10 * time.Second, Bytes: 64 << 10}
	for _, c := range []struct {
		name   string
		pieces []string
		every  time.Duration // before each piece
		want   error
		after  time.Duration
	}{
		{"silence", nil, 0, ErrIdle, time.Minute},
		{"late but whole", []string{head("GET / HTTP/1.1", "Host: h")}, 50 * time.Second, nil, 50 * time.Second},
		{"begun and silent", []string{"GET"}, 20 * time.Second, ErrHeadTimeout, 30 * time.Second},
		{"trickling", strings.Split("GET / HTTP/1.1 and so on", ""), 3 * time.Second, ErrHeadTimeout, 13 * time.Second},
		{"slow but in time", []string{"GET / HTTP", "/1.1\r\nHost", ": h\r\n\r\n"}, 4 * time.Second, nil, 12 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				conn, end := fed(c.every, c.pieces)
				defer end()
				from := time.Now()
				var q Request
				if err := conn.ReadRequest(&q, limits); err != c.want || time.Since(from) != c.after {
					t.Errorf("%v after %v, want %v after %v", err, time.Since(from), c.want, c.after)
				}
			})
		})
	}
}

// Each head has its own time, also one that came in part with the one before.
func TestHeadTimeoutOfThePipelined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, end := fed(8*time.Second, []string{"GET /1 HT", "TP/1.1\r\nHost: h\r\n\r\nGET /2 HTTP", "/1.1\r\nHost: h\r\n\r\nGET", " /3 HTTP/1.1\r\nHost: h\r\n\r\n"})
		defer end()
		l := &log{c: c, most: 3}
		c.Serve(&l.q, HeadLimits{Total: 10 * time.Second, Bytes: 1000}, l)
		if len(l.got) != 3 || l.err != nil {
			t.Errorf("handled %q, then %v", l.got, l.err)
		}
	})
}

func TestIdleUntilTheFirstByte(t *testing.T) {
	inEveryWay(t, func(t *testing.T, c *Conn, far *net.TCPConn, _ *leaver) {
		l := &log{c: c, most: 2}
		busy := make(chan bool, 2)
		l.body = func() { busy <- c.Idle() }
		done := async(func() error { c.Serve(&l.q, wide(), l); return l.err })
		for range 2 {
			eventually(t, "idle before a request", c.Idle)
			send(t, far, "GET / HT")
			eventually(t, "busy with a head", func() bool { return !c.Idle() })
			send(t, far, "TP/1.1\r\nHost: h\r\n\r\n")
			if await(t, busy, "the request") {
				t.Error("idle while it handles a request")
			}
		}
		if err := await(t, done, "the end"); err != nil {
			t.Fatal(err)
		}
	})
}

func TestInterruptServe(t *testing.T) {
	for _, begun := range []string{"", "GET / HT"} {
		inEveryWay(t, func(t *testing.T, c *Conn, far *net.TCPConn, _ *leaver) {
			l := &log{c: c}
			done := async(func() error { c.Serve(&l.q, wide(), l); return l.err })
			send(t, far, begun)
			eventually(t, "it waits", func() bool { return c.Idle() == (begun == "") })
			c.Interrupt()
			wants(t, await(t, done, "the end"), ErrInterrupted)
		})
	}
}

// A stream that was given up writes nothing more, wherever it runs.
func TestInterruptAHandler(t *testing.T) {
	inEveryWay(t, func(t *testing.T, c *Conn, far *net.TCPConn, _ *leaver) {
		l := &log{c: c, most: 1}
		l.body = func() {
			c.Interrupt()
			if err := c.Write([]byte("x"), time.Minute); err != ErrInterrupted {
				t.Errorf("a write after the interrupt: %v", err)
			}
		}
		done := async(func() error { c.Serve(&l.q, wide(), l); return l.err })
		send(t, far, head("GET / HTTP/1.1", "Host: h"))
		if err := await(t, done, "the end"); err != nil {
			t.Fatal(err)
		}
		c.Close()
		if n, err := far.Read(make([]byte, 1)); n != 0 {
			t.Errorf("the client got %d bytes, %v", n, err)
		}
	})
}

// An answer written from within a wait reaches the client whole, also where
// the kernel does not take it at once.
func TestWriteWithinServe(t *testing.T) {
	inEveryWay(t, func(t *testing.T, c *Conn, far *net.TCPConn, _ *leaver) {
		big := strings.Repeat("0123456789", 1<<20)
		l := &log{c: c, most: 1}
		l.body = func() {
			if err := c.Write([]byte(big), 10*time.Second); err != nil {
				t.Error(err)
			}
		}
		done := async(func() error { c.Serve(&l.q, wide(), l); return l.err })
		send(t, far, head("GET / HTTP/1.1", "Host: h"))
		receive(t, far, big)
		if err := await(t, done, "the end"); err != nil {
			t.Fatal(err)
		}
	})
}

// Linger keeps reading what the client still sends, so that the answer is not
// lost to a reset; it is bounded by time and bytes.
func TestLinger(t *testing.T) {
	c, far, _ := served(t, "plain")
	send(t, far, strings.Repeat("x", 100_000))
	if err := c.Write([]byte("answer"), time.Minute); err != nil {
		t.Fatal(err)
	}
	done := async(func() error { c.Linger(10*time.Second, 16<<20); return nil })
	receive(t, far, "answer")
	if _, err := far.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("behind the answer: %v", err)
	}
	far.CloseWrite()
	await(t, done, "the client has closed")
	if c.buf != nil {
		t.Error("a buffer is held")
	}
}

func TestLingerIsBounded(t *testing.T) {
	for name, linger := range map[string]func(*Conn){
		"time":  func(c *Conn) { c.Linger(30*time.Millisecond, 1<<40) },
		"bytes": func(c *Conn) { c.Linger(time.Hour, 1<<20) },
	} {
		c, far, _ := served(t, "plain")
		go func() {
			for {
				if _, err := far.Write(make([]byte, 4096)); err != nil {
					return
				}
			}
		}()
		await(t, async(func() error { linger(c); return nil }), name)
	}
	c, _, _ := served(t, "wrapped") // cannot say that no more comes
	await(t, async(func() error { c.Linger(time.Hour, 1<<20); return nil }), "without CloseWrite")
}

func TestRemoteAddr(t *testing.T) {
	c, far, _ := served(t, "plain")
	if c.RemoteAddr().String() != far.LocalAddr().String() {
		t.Errorf("%v, want %v", c.RemoteAddr(), far.LocalAddr())
	}
}

// The same on real sockets, where a wait by edges has its own way.
func TestHeadTimeoutInEveryWay(t *testing.T) {
	inEveryWay(t, func(t *testing.T, c *Conn, far *net.TCPConn, _ *leaver) {
		send(t, far, "GET / HT")
		var q Request
		from := time.Now()
		err := c.ReadRequest(&q, HeadLimits{Idle: time.Hour, Total: 40 * time.Millisecond, Bytes: 1000})
		if took := time.Since(from); err != ErrHeadTimeout || took < 35*time.Millisecond {
			t.Errorf("%v after %v", err, took)
		}
	})
}
