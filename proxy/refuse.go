package proxy

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/starling-lb/starling/proxy/backend"
	"github.com/starling-lb/starling/proxy/wire"
)

// failure is why an exchange was not carried to its end: what the client is
// told, and what is counted.
type failure struct {
	code      backend.Code // "" where the client can be told nothing
	reason    backend.Reason
	message   string
	err       error
	elsewhere bool   // another backend may be tried: this one cannot have begun
	repeat    bool   // no byte of an answer came: it may be tried again where that does no harm
	stale     bool   // the kept connection was closed before: a new one may be tried
	blame     bool   // it counts against the backend
	timeout   string // which time-out it was; "" for none
	of        uint64 // the id of the only stream that it may end; 0: any
}

func (f *failure) Error() string {
	if f.err != nil {
		return f.message + ": " + f.err.Error()
	}
	return f.message
}

func (f *failure) Unwrap() error { return f.err }

func badResponse(err error) error {
	return &failure{code: backend.BadResponse, reason: backend.BackendBroke, message: "the backend's answer is no valid HTTP", err: err}
}

func tooLarge(limit int64) *failure {
	return &failure{code: backend.BodyTooLarge, reason: backend.Refused, message: fmt.Sprintf("the body is longer than %d bytes", limit)}
}

// headFailure says what is answered to a head that could not be read.
func headFailure(err error) error {
	f := &failure{code: backend.BadRequest, reason: backend.Refused, message: "the request is not valid HTTP/1.1", err: err}
	switch {
	case errors.Is(err, wire.ErrHeadTimeout):
		f.code, f.reason, f.message = backend.RequestTimeout, backend.ClientSlow, "the request's head took too long"
		f.timeout = "request_header"
	case errors.Is(err, wire.ErrTooLarge):
		f.code, f.message = backend.HeaderTooLarge, "the request's head is too large"
	case errors.Is(err, wire.ErrCoding):
		f.code, f.message = backend.UnsupportedCoding, "only the transfer coding chunked is supported"
	case errors.Is(err, wire.ErrVersion):
		f.code, f.message = backend.UnsupportedVersion, "only HTTP/1.1 and HTTP/1.0 are supported"
	case errors.Is(err, wire.ErrFraming):
		f.message = "the request's length is ambiguous"
	}
	return f
}

// bodyFailure says what is answered to a body that could not be read.
func bodyFailure(err error, p *pool) *failure {
	switch {
	case errors.Is(err, wire.ErrChunk):
		return &failure{code: backend.BadRequest, reason: backend.Refused, message: "the body's chunked framing is broken", err: err}
	case errors.Is(err, wire.ErrBodyTooLarge):
		return tooLarge(p.cfg.Limits.MaxRequestBody)
	case errors.Is(err, wire.ErrTooLarge):
		return &failure{code: backend.HeaderTooLarge, reason: backend.Refused, message: "the body has too many trailers", err: err}
	case errors.Is(err, wire.ErrIdle):
		return &failure{code: backend.RequestTimeout, reason: backend.ClientSlow, message: "the request's body stopped coming", timeout: "request_body", err: err}
	}
	return &failure{reason: backend.ClientLeft, message: "the client closed its connection within the body", err: err}
}

// refuse answers a request that was not carried, where an answer can still be
// given, and tells whether the connection can carry another.
func (c *client) refuse(f *failure) (again bool) {
	if f.code == "" {
		return false
	}
	if f.reason == backend.Shed {
		c.server.metrics.shed(c.stream.poolName, f.code)
	}
	c.close = c.close || !c.bodyRead()
	extra := "X-Starling-Error: " + string(f.code) + "\r\n"
	if f.code.RetryAfter() {
		extra += "Retry-After: " + strconv.Itoa(c.retryAfter()) + "\r\n"
	}
	var body struct {
		Error struct {
			Code      backend.Code `json:"code"`
			Message   string       `json:"message"`
			RequestID string       `json:"request_id"`
		} `json:"error"`
	}
	body.Error.Code, body.Error.Message, body.Error.RequestID = f.code, f.message, string(c.id)
	text, err := json.Marshal(body)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	if c.conn.Write(c.answer(statusLine(f.code.Status()), "application/json", extra, string(text)+"\n"), c.gate.timeouts.WriteIdle) != nil {
		return false
	}
	c.told = f.code
	c.stream.out.Store(int64(len(c.out)))
	if c.close {
		c.ending = endLinger
	}
	return !c.close
}

// statusLine is a status with its phrase, which is RFC 9110's also where net/http
// has an older one.
func statusLine(status int) string {
	if status == http.StatusRequestEntityTooLarge {
		return "413 Content Too Large"
	}
	return strconv.Itoa(status) + " " + http.StatusText(status)
}

// answer is a whole answer of starling's own.
func (c *client) answer(status, contentType, extra, body string) []byte {
	c.out = fmt.Appendf(c.out[:0], "HTTP/1.1 %s\r\nDate: %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n%s",
		status, time.Now().UTC().Format(http.TimeFormat), contentType, len(body), extra)
	switch {
	case c.close && !c.req.HTTP10:
		c.out = append(c.out, "Connection: close\r\n"...)
	case c.req.HTTP10 && !c.close:
		c.out = append(c.out, "Connection: keep-alive\r\n"...)
	}
	c.out = append(c.out, "\r\n"...)
	if !c.req.IsHead() {
		c.out = append(c.out, body...)
	}
	return c.out
}

// retryAfter is in seconds, spread by half either way so that those who were
// turned away do not come back together.
func (c *client) retryAfter() int {
	wait := 2 * time.Second
	if p := c.stream.pool; p != nil {
		wait = p.cfg.Queue.RetryAfter
	}
	jittered := time.Duration((0.5 + rand.Float64()) * float64(wait))
	return max(1, int((jittered+time.Second-1)/time.Second))
}

const maxIDLength = 128

// identify makes the request an id: 128 random bits in hex.
func (c *client) identify() {
	const digits = "0123456789abcdef"
	c.id = c.id[:0]
	for range 2 {
		for n, i := rand.Uint64(), 0; i < 16; i++ {
			c.id = append(c.id, digits[n>>(4*i)&15])
		}
	}
}

// adopt takes the id that a trusted client gave the request instead.
func (c *client) adopt(name string) {
	if !c.trusted || name == "" {
		return
	}
	v, ok := c.req.FieldFold(name)
	if !ok || len(v) == 0 || len(v) > maxIDLength {
		return
	}
	for _, b := range v {
		if b <= ' ' || b >= 0x7f {
			return
		}
	}
	c.id = append(c.id[:0], v...)
}
