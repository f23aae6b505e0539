package wirecase

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

type framingKind int

const (
	noBody framingKind = iota
	counted
	chunked
	untilClose
)

// framing says where a body ends.
type framing struct {
	kind   framingKind
	length int64 // of a counted one
}

// framing reads Content-Length and Transfer-Encoding; without either it is
// what the caller says.
func (m *Message) framing(without framingKind) framing {
	sizes, codings := m.Lines("Content-Length"), m.Lines("Transfer-Encoding")
	if len(sizes) > 0 && len(codings) > 0 {
		m.defect("Content-Length beside Transfer-Encoding")
	}
	if len(codings) > 0 {
		if len(codings) != 1 || !strings.EqualFold(codings[0], "chunked") {
			m.defect("Transfer-Encoding %q is not a single chunked", codings)
		}
		return framing{kind: chunked}
	}
	if len(sizes) == 0 {
		return framing{kind: without}
	}
	n, err := number(sizes[0], 10, 18)
	if err != nil || len(sizes) > 1 {
		m.defect("Content-Length %q is not one number", sizes)
	}
	return framing{kind: counted, length: n}
}

// number takes digits alone: no sign, no blank, no separator.
func number(s string, base, digits int) (int64, error) {
	if s == "" || len(s) > digits || strings.ContainsAny(s, "+-_") {
		return 0, fmt.Errorf("%q is no number of 1 to %d digits", s, digits)
	}
	return strconv.ParseInt(s, base, 64)
}

// errFraming is a body that is not framed as it must be.
var errFraming = errors.New("broken chunk framing")

// bodyReader reads one body and hands each piece on when it comes.
type bodyReader struct {
	r     *bufio.Reader
	piece func([]byte)
	tail  Message // takes trailers, and defects of chunk and trailer lines
}

// read returns nil if the body ended as its framing says, errFraming if it
// broke it, else why the connection ended.
func (b *bodyReader) read(f framing) error {
	switch f.kind {
	case counted:
		return b.copy(f.length)
	case chunked:
		return b.chunks()
	case untilClose:
		return b.rest()
	}
	return nil
}

func (b *bodyReader) copy(left int64) error {
	var buf [16 << 10]byte
	for left > 0 {
		n, err := b.r.Read(buf[:min(left, int64(len(buf)))])
		if n > 0 {
			b.piece(buf[:n])
			left -= int64(n)
		}
		if err != nil && left > 0 {
			return unexpected(err)
		}
	}
	return nil
}

func (b *bodyReader) rest() error {
	err := b.copy(1 << 62)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return nil // an orderly close is the end it announced
	}
	return err
}

func (b *bodyReader) chunks() error {
	for {
		line, err := b.line()
		if err != nil {
			return err
		}
		digits, _, _ := strings.Cut(line, ";")
		size, err := number(digits, 16, 15)
		if err != nil {
			b.tail.defect("chunk size line %q", line)
			return errFraming
		}
		if size == 0 {
			return b.trailers()
		}
		if err := b.copy(size); err != nil {
			return err
		}
		if line, err = b.line(); err != nil {
			return err
		}
		if line != "" {
			b.tail.defect("%q where a chunk must end", line)
			return errFraming
		}
	}
}

func (b *bodyReader) trailers() error {
	for {
		line, err := b.line()
		if err != nil || line == "" {
			return err
		}
		b.tail.Trailers = append(b.tail.Trailers, b.tail.field(line))
		if len(b.tail.Defects) > 0 {
			return errFraming
		}
	}
}

// line reads one line of the framing, which must end in CRLF.
func (b *bodyReader) line() (string, error) {
	b.tail.Raw = b.tail.Raw[:0]
	line, err := b.tail.readLine(b.r)
	if err == nil && len(b.tail.Defects) > 0 {
		err = errFraming
	}
	return line, unexpected(err)
}

func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// end notes on the message how its body ended.
func (m *Message) end(b *bodyReader, err error) {
	m.Trailers = b.tail.Trailers
	m.Defects = append(m.Defects, b.tail.Defects...)
	m.Complete = err == nil
	m.Cut = err != nil && !errors.Is(err, errFraming)
}
