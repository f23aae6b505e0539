package load

import (
	"bytes"
	"errors"
)

var errChunk = errors.New("chunked body is malformed")

// chunks decodes the chunked coding through any split of its bytes. Strict:
// what a proxy sends to a client has no reason to be anything but well formed.
type chunks struct {
	at     chunkPlace
	left   int64 // of the current chunk
	digits int   // of the current size
}

type chunkPlace uint8

const (
	inSize chunkPlace = iota
	inExtension
	inData
	afterData  // CR
	afterData2 // LF
	lineStart  // of a trailer field, or of the empty line
	inTrailer
	lastLF
	chunksEnd
)

// feed hands the data in p to b and returns what it left over. b.take is
// called with at, the time when p was read.
func (c *chunks) feed(p []byte, b body, at int64) ([]byte, error) {
	for len(p) > 0 && c.at != chunksEnd {
		switch c.at {
		case inData:
			n := min(int64(len(p)), c.left)
			if err := b.take(p[:n], at); err != nil {
				return nil, err
			}
			p = p[n:]
			if c.left -= n; c.left == 0 {
				c.at = afterData
			}
		case inExtension, inTrailer:
			i := bytes.IndexByte(p, '\n')
			if i < 0 {
				return nil, nil
			}
			p = p[i+1:]
			c.endLine()
		default:
			if !c.octet(p[0]) {
				return nil, errChunk
			}
			p = p[1:]
		}
	}
	return p, nil
}

// endLine is called behind the LF of a size line or a trailer field.
func (c *chunks) endLine() {
	switch {
	case c.at == inTrailer || c.left == 0:
		c.at = lineStart
	default:
		c.at = inData
	}
	c.digits = 0
}

// octet steps over one byte that is not data; false: it may not stand here.
func (c *chunks) octet(ch byte) bool {
	switch c.at {
	case inSize:
		return c.sizeOctet(ch)
	case afterData:
		c.at = afterData2
		return ch == '\r'
	case afterData2:
		c.at = inSize
		return ch == '\n'
	case lineStart:
		c.at = inTrailer
		if ch == '\r' {
			c.at = lastLF
		}
		return ch != '\n'
	default: // lastLF
		c.at = chunksEnd
		return ch == '\n'
	}
}

func (c *chunks) sizeOctet(ch byte) bool {
	if v, ok := hexDigit(ch); ok {
		c.left = c.left<<4 | int64(v)
		c.digits++
		return c.digits <= 8 // 4 GiB: more than any body here
	}
	c.at = inExtension
	return c.digits > 0 && (ch == '\r' || ch == ';')
}

func hexDigit(ch byte) (byte, bool) {
	switch {
	case ch >= '0' && ch <= '9':
		return ch - '0', true
	case ch >= 'a' && ch <= 'f':
		return ch - 'a' + 10, true
	case ch >= 'A' && ch <= 'F':
		return ch - 'A' + 10, true
	}
	return 0, false
}
