package wire

import "errors"

// ErrChunk is broken chunk framing (RFC 9112 section 7.1).
var ErrChunk = errors.New("broken chunked framing")

const (
	maxSizeDigits = 15      // 2^60 bytes: no overflow, more than anybody sends
	maxExtensions = 4 << 10 // bytes of chunk extensions in one chunk header
	maxTrailers   = 64 << 10
)

type chunkState uint8

const (
	chunkSize chunkState = iota
	chunkExtension
	chunkSizeLF
	chunkData
	chunkDataCR
	chunkDataLF
	trailerStart
	trailerName
	trailerValue
	trailerLF
	trailerEndLF
	chunksDone
)

// Chunks finds the end of a chunked body in a stream of bytes that come in any
// pieces, and checks the framing strictly. The zero value stands before the
// first chunk. It keeps no data.
type Chunks struct {
	state  chunkState
	left   int64 // bytes of data to come in this chunk; the size while it is read
	digits int
	line   int // bytes of extension, or of trailers, so far
}

// Scan goes over p and returns how many bytes belong to the body; done tells
// that its end is among them.
func (c *Chunks) Scan(p []byte) (n int, done bool, err error) {
	for n < len(p) && c.state != chunksDone {
		_, used, err := c.Next(p[n:])
		n += used
		if err != nil {
			return n, false, err
		}
	}
	return n, c.state == chunksDone, nil
}

// Done tells whether the end was seen.
func (c *Chunks) Done() bool { return c.state == chunksDone }

// atTrailers tells whether the data has ended and what follows is a trailer, or
// the empty line at the end.
func (c *Chunks) atTrailers() bool { return c.state == trailerStart }

// Next goes on to the next piece of data, which it returns, or to the end of
// the data, of p or of the body. used counts framing and data.
func (c *Chunks) Next(p []byte) (data []byte, used int, err error) {
	for used < len(p) && c.state != chunksDone {
		if c.state == chunkData {
			n := min(c.left, int64(len(p)-used))
			data = p[used : used+int(n)]
			if c.left -= n; c.left == 0 {
				c.state = chunkDataCR
			}
			return data, used + int(n), nil
		}
		before := c.state
		if !c.step(p[used]) {
			return nil, used, ErrChunk
		}
		used++
		if c.state == trailerStart && before == chunkSizeLF {
			break
		}
	}
	return nil, used, nil
}

// step takes one byte of framing and tells whether it may stand there.
func (c *Chunks) step(b byte) bool {
	switch c.state {
	case chunkSize:
		return c.size(b)
	case chunkExtension:
		if b == '\r' {
			c.state = chunkSizeLF
			return true
		}
		c.line++
		return c.line <= maxExtensions && isValueByte(b)
	case chunkSizeLF:
		c.digits, c.line = 0, 0
		c.state = chunkData
		if c.left == 0 {
			c.state = trailerStart
		}
		return b == '\n'
	case chunkDataCR:
		c.state = chunkDataLF
		return b == '\r'
	case chunkDataLF:
		c.state = chunkSize
		return b == '\n'
	default:
		return c.trailer(b)
	}
}

func (c *Chunks) size(b byte) bool {
	if d, ok := hexDigit(b); ok {
		c.digits++
		c.left = c.left<<4 | int64(d)
		return c.digits <= maxSizeDigits
	}
	switch {
	case c.digits == 0:
		return false
	case b == '\r':
		c.state = chunkSizeLF
	case b == ';': // blanks before it, which RFC 9112 7.1.1 lets in, are read differently by different parsers
		c.state = chunkExtension
	default:
		return false
	}
	return true
}

func (c *Chunks) trailer(b byte) bool {
	if c.line++; c.line > maxTrailers {
		return false
	}
	switch c.state {
	case trailerStart:
		if b == '\r' {
			c.state = trailerEndLF
			return true
		}
		c.state = trailerName
		return isTokenByte(b)
	case trailerName:
		if b == ':' {
			c.state = trailerValue
			return true
		}
		return isTokenByte(b)
	case trailerValue:
		if b == '\r' {
			c.state = trailerLF
			return true
		}
		return isValueByte(b)
	case trailerLF:
		c.state = trailerStart
		return b == '\n'
	case trailerEndLF:
		c.state = chunksDone
		return b == '\n'
	}
	panic("BUG: no such chunk state")
}

func hexDigit(b byte) (byte, bool) {
	switch {
	case b >= '0' && b <= '9':
		return b - '0', true
	case b >= 'a' && b <= 'f':
		return b - 'a' + 10, true
	case b >= 'A' && b <= 'F':
		return b - 'A' + 10, true
	}
	return 0, false
}
