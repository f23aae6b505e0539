package wire

import (
	"bufio"
	"bytes"
	"fmt"
	"sync"

	"github.com/valyala/fasthttp"
)

// Jury gives a second opinion on heads: fasthttp's parsers read the same bytes
// as ours. It keeps what they need while they read, so that connections need
// not. The zero value is ready.
type Jury struct{ seats sync.Pool }

type seat struct {
	request  fasthttp.RequestHeader
	response fasthttp.ResponseHeader
	in       *bufio.Reader
	src      bytes.Reader
}

// take has a seat read raw, which is one head.
func (j *Jury) take(raw []byte) *seat {
	s, ok := j.seats.Get().(*seat)
	if !ok {
		s = &seat{in: bufio.NewReaderSize(nil, smallBuffer)}
		s.request.DisableNormalizing()
		s.response.DisableNormalizing()
	}
	s.src.Reset(raw)
	if s.in.Size() < len(raw) {
		s.in = bufio.NewReaderSize(&s.src, len(raw))
	} else {
		s.in.Reset(&s.src)
	}
	return s
}

// request is the length of the request's body: bytes, or Chunked.
func (j *Jury) request(raw []byte) (int64, error) {
	s := j.take(raw)
	defer j.seats.Put(s)
	if err := s.request.Read(s.in); err != nil {
		return 0, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	if s.in.Buffered() != 0 {
		return 0, ErrFraming
	}
	if s.request.ContentLength() == int(UntilClose) {
		return 0, nil // a request without framing has no body (RFC 9112 section 6.3)
	}
	return int64(s.request.ContentLength()), nil
}

// response refuses what fasthttp refuses.
func (j *Jury) response(raw []byte) error {
	s := j.take(raw)
	defer j.seats.Put(s)
	if err := s.response.Read(s.in); err != nil {
		return fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return nil
}
