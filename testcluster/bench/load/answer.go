package load

import (
	"errors"
	"fmt"
)

var errSurplus = errors.New("bytes after the end of the answer")

// body judges the body of one answer.
type body interface {
	// take gets the body piece by piece, with the time when it was read.
	take(p []byte, at int64) error
	// end is called once, when the framing says that the body is complete.
	end() error
}

// answer follows one response through any split of its bytes. Only a 200 with
// a framed body is a right answer here; one that ends with the connection
// could not be told from one that was cut.
type answer struct {
	held   []byte // of an unfinished head; nil if there is none
	head   head
	inBody bool
	left   int64 // of a body with a length
	chunks chunks
}

// feed judges p, which was read at the given time. done: the answer is
// complete, and the answer may be used for the next one after reset.
func (a *answer) feed(p []byte, b body, at int64) (done bool, err error) {
	if !a.inBody {
		if p, err = a.feedHead(p); err != nil || !a.inBody {
			return false, err
		}
	}
	var rest []byte
	if a.head.chunked {
		rest, err = a.chunks.feed(p, b, at)
		done = a.chunks.at == chunksEnd
	} else {
		n := min(int64(len(p)), a.left)
		err = b.take(p[:n], at)
		rest, a.left = p[n:], a.left-n
		done = a.left == 0
	}
	switch {
	case err != nil:
		return false, err
	case !done:
		return false, nil
	case len(rest) > 0:
		return false, errSurplus
	}
	return true, b.end()
}

// feedHead returns the bytes behind the head once it is complete.
func (a *answer) feedHead(p []byte) ([]byte, error) {
	if a.held != nil {
		a.held = append(a.held, p...)
		p = a.held
	}
	h, size, err := parseHead(p)
	if err != nil {
		return nil, err
	}
	if size == 0 {
		if a.held == nil {
			a.held = append([]byte(nil), p...)
		}
		return nil, nil
	}
	if status := string(h.start[:min(12, len(h.start))]); status != "HTTP/1.1 200" {
		return nil, fmt.Errorf("answer is %q, want HTTP/1.1 200", h.start)
	}
	if h.length < 0 && !h.chunked {
		return nil, errNoLength
	}
	h.start = nil // it points into the caller's buffer
	a.head, a.left, a.inBody, a.held = h, h.length, true, nil
	return p[size:], nil
}

func (a *answer) reset() { *a = answer{} }
