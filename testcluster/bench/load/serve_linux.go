package load

import (
	"bytes"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// conn is a connection to the backend.
type conn struct {
	fd      int // -1: dropped
	in      []byte
	out     []byte // what the kernel would not take yet; may be part of a shared answer, so it is never written into
	close   bool   // once out is empty
	stream  *stream
	id      uint32
	watched bool
	held    bool // is never answered
}

// serve reads until there is no more: that is after a short read, or if the
// other side hung up after the end.
func (b *Backend) serve(c *conn, hungUp bool) {
	b.flush(c)
	for c.fd >= 0 {
		n, errno := receive(c.fd, b.in)
		if errno == unix.EAGAIN {
			return
		}
		if errno != 0 || n == 0 {
			b.drop(c)
			return
		}
		b.arrived(c, b.in[:n])
		if n < len(b.in) && !hungUp {
			return
		}
	}
}

func (b *Backend) arrived(c *conn, p []byte) {
	if len(c.in) > 0 {
		c.in = append(c.in, p...)
		p = c.in
	}
	for c.fd >= 0 && len(p) > 0 {
		size, err := b.request(c, p)
		if err != nil {
			c.close = true
			b.send(c, reply("400 Bad Request", []byte(err.Error())))
			return
		}
		if size == 0 {
			break
		}
		p = p[size:]
	}
	c.in = append(c.in[:0], p...)
}

// request answers the request at the start of p and returns its size; 0: it
// is not complete yet.
func (b *Backend) request(c *conn, p []byte) (int, error) {
	h, size, err := parseHead(p)
	if err != nil || size == 0 {
		return 0, err
	}
	got := exact{want: b.pattern}
	switch {
	case h.chunked:
		var dec chunks
		rest, err := dec.feed(p[size:], &got, 0)
		if err != nil || dec.at != chunksEnd {
			return 0, err
		}
		size = len(p) - len(rest)
	case h.length > int64(len(p)-size):
		return 0, nil
	case h.length > 0:
		if err := got.take(p[size:size+int(h.length)], 0); err != nil {
			return 0, err
		}
		size += int(h.length)
	}
	c.close = h.close
	return size, b.answer(c, h.start)
}

func (b *Backend) answer(c *conn, start []byte) error {
	_, rest, _ := bytes.Cut(start, []byte(" "))
	target, version, _ := bytes.Cut(rest, []byte(" "))
	if string(version) != "HTTP/1.1" {
		return fmt.Errorf("request line is %q, want HTTP/1.1", start)
	}
	if n, ok := bytes.CutPrefix(target, []byte("/bytes/")); ok {
		return b.sendPattern(c, n)
	}
	path, query, _ := strings.Cut(string(target), "?")
	values, err := url.ParseQuery(query)
	if err != nil {
		return fmt.Errorf("query of %s: %w", target, err)
	}
	switch path {
	case "/health":
		b.send(c, reply("200 OK", nil))
	case "/hold":
		c.held = true
		return b.watch(c, values)
	case "/events":
		return b.startStream(c, values)
	default:
		b.send(c, reply("404 Not Found", nil))
	}
	return nil
}

func (b *Backend) sendPattern(c *conn, digits []byte) error {
	n, err := strconv.Atoi(string(digits))
	if err != nil || n < 0 || n > MaxBody {
		return fmt.Errorf("length %q is not within 0..%d", digits, MaxBody)
	}
	whole, ok := b.answers[n]
	if !ok {
		whole = reply("200 OK", b.pattern[:n])
		b.answers[n] = whole
	}
	b.send(c, whole)
	return nil
}

func reply(status string, body []byte) []byte {
	head := fmt.Sprintf("HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", status, len(body))
	return append([]byte(head), body...)
}

// watch notes that the request is here.
func (b *Backend) watch(c *conn, q url.Values) error {
	id, err := strconv.ParseUint(q.Get("id"), 10, 32)
	if err != nil {
		return fmt.Errorf("id: %w", err)
	}
	c.id, c.watched = uint32(id), true
	b.note(Note{ID: c.id})
	return nil
}

// send gives p to the kernel and keeps what it does not take. p may be shared:
// it is kept as it is, and copied when more is put behind it.
func (b *Backend) send(c *conn, p []byte) {
	if len(c.out) > 0 {
		if c.out = append(c.out, p...); len(c.out) > 8*MaxBody {
			b.drop(c) // a reader this slow cannot be part of a valid run
		}
		return
	}
	c.out = p[:len(p):len(p)]
	b.flush(c)
}

func (b *Backend) flush(c *conn) {
	if len(c.out) == 0 {
		return
	}
	n, errno := send(c.fd, c.out)
	if errno != 0 {
		b.drop(c)
		return
	}
	if c.out = c.out[n:]; len(c.out) > 0 {
		return
	}
	c.out = nil
	if c.close && c.stream == nil && !c.held {
		// FIN only: closing with unread bytes would reset the answer away.
		_ = syscall.Shutdown(c.fd, unix.SHUT_WR)
	}
}
