package hostile

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"time"
)

// attack is one way to mean ill. Each of its clients does it on one connection
// after the other.
type attack struct {
	name    string
	clients int
	do      func(*enemy) error // until ctx ends, or the node has enough of it
}

// enemy is one hostile client and its connection.
type enemy struct {
	net.Conn
	ctx context.Context
	in  *bufio.Reader
}

const (
	enemyIP    = "127.0.0.66"
	blink      = 50 * time.Millisecond // between two connections of one client
	longBody   = "POST /sink HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\n"
	chunked    = "POST /sink HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
	upgrade    = "GET /ws HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
	small      = "GET /small HTTP/1.1\r\nHost: x\r\n\r\n"
	sse        = "GET /sse HTTP/1.1\r\nHost: x\r\n\r\n"
	endless    = "GET /endless HTTP/1.1\r\nHost: x\r\n\r\n"
	mostOfHead = 60 << 10 // of max_request_header's 64 KiB
)

// attacks are the ways, with as many clients as hurt and do not starve the honest
// clients' own machine, which this is too.
func attacks() []attack {
	return []attack{
		{"slow heads", 300, func(e *enemy) error {
			return e.drip("GET / HTTP/1.1\r\nHost: x\r\n", "X-A: b\r\n", 200*time.Millisecond)
		}},
		{"heads byte by byte", 50, func(e *enemy) error { return e.drip("GET /", "a", 2*time.Millisecond) }},
		{"slow bodies", 300, func(e *enemy) error { return e.drip(longBody, "a", 200*time.Millisecond) }},
		{"slow chunks", 300, func(e *enemy) error { return e.drip(chunked, "1\r\na\r\n", 200*time.Millisecond) }},
		{"idle from the start", 600, func(e *enemy) error { return e.drip("", "", time.Second) }},
		{"idle after a request", 600, func(e *enemy) error { return e.drip(small, "", time.Second) }},
		{"opens and closes", 20, func(e *enemy) error { return nil }},
		{"leaves with a reset", 20, func(e *enemy) error { return e.reset() }},
		{"large heads", 20, func(e *enemy) error { return e.repeat(largeHead(mostOfHead), 50*time.Millisecond) }},
		{"too large heads", 20, func(e *enemy) error { return e.drip(largeHead(10*mostOfHead), "", time.Second) }},
		{"huge chunks", 20, func(e *enemy) error {
			return e.drip(chunked+"fffffffffffffff\r\n", strings.Repeat("a", 16<<10), 20*time.Millisecond)
		}},
		{"endless chunk extensions", 20, func(e *enemy) error {
			return e.drip(chunked, strings.Repeat("1;"+strings.Repeat("e", 4000)+"\r\na\r\n", 4), 20*time.Millisecond)
		}},
		{"one endless extension", 20, func(e *enemy) error { return e.drip(chunked+"1;", strings.Repeat("e", 16<<10), 20*time.Millisecond) }},
		{"WebSockets opened", 20, func(e *enemy) error { return e.shake() }},
		{"WebSockets held", 300, func(e *enemy) error { return e.frames(nil, time.Second) }},
		{"WebSocket pings", 50, func(e *enemy) error { return e.frames(frame(9, 4), 5*time.Millisecond) }},
		{"tiny frames", 50, func(e *enemy) error { return e.frames(frame(1, 1), 5*time.Millisecond) }},
		{"slow readers", 100, func(e *enemy) error { return e.sip(endless) }},
		{"readers who stop", 100, func(e *enemy) error { return e.drip(endless, "", time.Second) }},
	}
}

func largeHead(size int) string {
	var b strings.Builder
	b.WriteString("GET /small HTTP/1.1\r\nHost: x\r\n")
	for i := 0; b.Len() < size; i++ {
		fmt.Fprintf(&b, "X-Field-%d: %s\r\n", i, strings.Repeat("v", 100))
	}
	return b.String() + "\r\n"
}

// frame is a client's WebSocket frame, masked with zeros.
func frame(op byte, size int) []byte {
	return append([]byte{0x80 | op, 0x80 | byte(size), 0, 0, 0, 0}, make([]byte, size)...)
}

// run is the life of one hostile client.
func (a attack) run(ctx context.Context, addr string) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(enemyIP)}, Control: narrow}
	for ctx.Err() == nil {
		if c, err := d.DialContext(ctx, "tcp", addr); err == nil {
			over := context.AfterFunc(ctx, func() { _ = c.Close() })
			_ = a.do(&enemy{c, ctx, bufio.NewReader(c)}) // it ends as the node likes, or with the round
			over()
			_ = c.Close()
		}
		pause(ctx, blink)
	}
}

// narrow has the kernel take little on behalf of who does not read.
func narrow(_, _ string, c syscall.RawConn) error {
	return c.Control(func(fd uintptr) { _ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4096) })
}

// drip sends first, and then more and more, whether or not anything comes back. It
// ends when the node closes.
func (e *enemy) drip(first, more string, every time.Duration) error {
	if _, err := io.WriteString(e, first); err != nil {
		return err
	}
	for e.ctx.Err() == nil {
		pause(e.ctx, every)
		if more == "" {
			if err := e.open(); err != nil {
				return err
			}
			continue
		}
		if _, err := io.WriteString(e, more); err != nil {
			return err
		}
	}
	return nil
}

// open tells of the node's end without taking anything from it.
func (e *enemy) open() error {
	raw, err := e.Conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		return err
	}
	var n int
	var seen error
	err = raw.Control(func(fd uintptr) {
		n, _, seen = syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	})
	if err != nil || seen == syscall.EAGAIN || n > 0 {
		return err
	}
	return io.EOF
}

// repeat asks again and again, as soon as it has its answer and a moment has passed.
func (e *enemy) repeat(request string, every time.Duration) error {
	for e.ctx.Err() == nil {
		if _, err := io.WriteString(e, request); err != nil {
			return err
		}
		if err := answer(e.in); err != nil {
			return err
		}
		pause(e.ctx, every)
	}
	return nil
}

// reset asks for a stream and breaks off when it has begun.
func (e *enemy) reset() error {
	if _, err := io.WriteString(e, sse); err != nil {
		return err
	}
	_, err := e.in.ReadByte()
	_ = e.Conn.(*net.TCPConn).SetLinger(0)
	return err
}

// shake opens a WebSocket.
func (e *enemy) shake() error {
	if _, err := io.WriteString(e, upgrade); err != nil {
		return err
	}
	status, err := e.in.ReadString('\n')
	if err == nil && !strings.Contains(status, " 101 ") {
		return fmt.Errorf("answered %q", status)
	}
	return err
}

// frames opens a WebSocket and sends the frame again and again, whose echo it
// reads; nil: it only holds the WebSocket.
func (e *enemy) frames(f []byte, every time.Duration) error {
	if err := e.shake(); err != nil {
		return err
	}
	if f == nil {
		return e.drip("", "", every)
	}
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_, _ = io.Copy(io.Discard, e.in)
	}()
	defer func() { <-gone }()
	defer e.Close()
	for e.ctx.Err() == nil {
		if _, err := e.Write(f); err != nil {
			return err
		}
		pause(e.ctx, every)
	}
	return nil
}

// sip asks for much and takes a byte at a time.
func (e *enemy) sip(request string) error {
	if _, err := io.WriteString(e, request); err != nil {
		return err
	}
	for e.ctx.Err() == nil {
		if _, err := e.Read(make([]byte, 1)); err != nil {
			return err
		}
		pause(e.ctx, 200*time.Millisecond)
	}
	return nil
}
