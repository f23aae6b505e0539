package admin

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/valyala/fasthttp"

	"github.com/starling-lb/starling/node/api"
)

// Code names a refusal of the admin API; it stands in the body and in the
// X-Starling-Error header.
type Code string

// The codes of the admin API; the list is closed.
const (
	BadRequest         Code = "bad_request"
	Unauthorized       Code = "unauthorized"
	Forbidden          Code = "forbidden"
	NotFound           Code = "not_found"
	MethodNotAllowed   Code = "method_not_allowed"
	RequestTimeout     Code = "request_timeout"
	Conflict           Code = "conflict"
	BodyTooLarge       Code = "body_too_large"
	HeaderTooLarge     Code = "header_too_large"
	Internal           Code = "internal"
	NotReady           Code = "not_ready"
	TooManyConnections Code = "too_many_connections"
)

// Status is the HTTP status that goes with the code.
func (c Code) Status() int {
	switch c {
	case BadRequest:
		return 400
	case Unauthorized:
		return 401
	case Forbidden:
		return 403
	case NotFound:
		return 404
	case MethodNotAllowed:
		return 405
	case RequestTimeout:
		return 408
	case Conflict:
		return 409
	case BodyTooLarge:
		return 413
	case HeaderTooLarge:
		return 431
	case Internal:
		return 500
	case NotReady, TooManyConnections:
		return 503
	}
	panic("BUG: no status for code " + string(c))
}

// Error is a refusal as the client gets it. Any other error of a handler is
// answered as Internal and logged.
type Error struct {
	Code    Code
	Message string // what, where, what to do
	allow   string // methods, for MethodNotAllowed
}

func (e *Error) Error() string { return e.Message }

func refuse(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

func putError(r *fasthttp.Response, e *Error, requestID string) {
	switch e.Code {
	case Unauthorized:
		r.Header.Set(fasthttp.HeaderWWWAuthenticate, `Bearer realm="starling"`)
	case MethodNotAllowed:
		r.Header.Set(fasthttp.HeaderAllow, e.allow)
	}
	r.Header.Set("X-Starling-Error", string(e.Code))
	r.SetStatusCode(e.Code.Status())
	r.Header.SetContentType("application/json")
	r.SetBodyRaw(errorText(e, requestID))
}

// errorText is the body of every refusal.
func errorText(e *Error, requestID string) []byte {
	text, err := encode(api.Error{Error: api.ErrorBody{Code: string(e.Code), Message: e.Message, RequestID: requestID}})
	if err != nil {
		panic("BUG: strings that JSON cannot hold: " + err.Error())
	}
	return text
}

func putJSON(r *fasthttp.Response, v any) error {
	text, err := encode(v)
	if err != nil {
		return err
	}
	r.Header.SetContentType("application/json")
	r.SetBodyRaw(text)
	return nil
}

func encode(v any) ([]byte, error) {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false) // no browser takes it for HTML, see nosniff
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("encode %T: %w", v, err)
	}
	return text.Bytes(), nil
}

// garbled answers what could not be read as a request.
func (s *Server) garbled(ctx *fasthttp.RequestCtx, err error) {
	e := refuse(BadRequest, "not a valid HTTP/1.1 request: %v", err)
	var head *fasthttp.ErrSmallBuffer
	switch {
	case errors.Is(err, fasthttp.ErrBodyTooLarge):
		e = refuse(BodyTooLarge, "the body is larger than %d bytes, which is the limit", maxBody)
	case errors.As(err, &head):
		e = refuse(HeaderTooLarge, "request line and header fields are larger than %d bytes, which is the limit", maxHeader)
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, fasthttp.ErrTimeout):
		e = refuse(RequestTimeout, "the request did not arrive within %v; send it in one go", s.http.ReadTimeout)
	}
	s.refused(ctx, e, newRequestID())
}

func (s *Server) refused(ctx *fasthttp.RequestCtx, e *Error, id string) {
	s.opt.Logger.Debug("admin request refused", "client", ctx.RemoteAddr().String(), "request_id", id, "err", e)
	finish(&ctx.Response, id)
	putError(&ctx.Response, e, id)
}

// finish sets what every answer carries.
func finish(r *fasthttp.Response, id string) {
	r.Header.Set("X-Request-Id", id)
	r.Header.Set(fasthttp.HeaderCacheControl, "no-store")
	r.Header.Set(fasthttp.HeaderXContentTypeOptions, "nosniff")
	r.Header.Set("Cross-Origin-Resource-Policy", "same-origin")
}

func newRequestID() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails: the runtime ends the process first
	return hex.EncodeToString(b[:])
}
