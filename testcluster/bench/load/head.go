package load

import (
	"bytes"
	"errors"
	"strconv"
)

var (
	errField    = errors.New("head has a malformed field")
	errNoLength = errors.New("length of the body is missing, contradictory or malformed")
	errTooLong  = errors.New("head is longer than 16 KiB")
)

const maxHead = 16 << 10

// head is what a message's head says about the message's extent.
type head struct {
	start   []byte // first line, without CRLF; points into the bytes parsed
	length  int64  // -1: none given
	chunked bool
	close   bool
}

// parseHead reads the head at the start of p; size 0: not complete yet.
func parseHead(p []byte) (h head, size int, err error) {
	end := bytes.Index(p, []byte("\r\n\r\n"))
	if end < 0 {
		if len(p) > maxHead {
			return h, 0, errTooLong
		}
		return h, 0, nil
	}
	h.length = -1
	h.start, p = line(p[:end+2])
	for len(p) > 0 && err == nil {
		var field []byte
		field, p = line(p)
		err = h.field(field)
	}
	if h.chunked && h.length >= 0 {
		err = errNoLength
	}
	return h, end + 4, err
}

func line(p []byte) (first, rest []byte) {
	i := bytes.IndexByte(p, '\n')
	return bytes.TrimSuffix(p[:i], []byte("\r")), p[i+1:]
}

func (h *head) field(f []byte) error {
	colon := bytes.IndexByte(f, ':')
	if colon <= 0 {
		return errField
	}
	switch name, value := f[:colon], bytes.TrimSpace(f[colon+1:]); {
	case fold(name, "content-length"):
		n, err := strconv.ParseUint(string(value), 10, 40)
		if err != nil || h.length >= 0 {
			return errNoLength
		}
		h.length = int64(n)
	case fold(name, "transfer-encoding"):
		if h.chunked || !fold(value, "chunked") {
			return errNoLength
		}
		h.chunked = true
	case fold(name, "connection"):
		h.close = h.close || fold(value, "close")
	}
	return nil
}

// fold compares without regard to case; lower is in lower case.
func fold(b []byte, lower string) bool {
	if len(b) != len(lower) {
		return false
	}
	for i, c := range b {
		if c >= 'A' && c <= 'Z' {
			c |= 0x20
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}
