package proxy

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"strconv"
	"time"

	"github.com/starling-lb/starling/proxy/backend"
)

// The names of attributes are OpenTelemetry's for HTTP servers where there is
// one, else starling's own.

// appendSpan appends one span in OTLP's JSON, a comma and a line feed, whatever
// bytes the entry holds. Traces are about the path: queries may hold secrets.
func appendSpan(dst []byte, e *accessEntry) []byte {
	method, name := knownMethod(e.method)
	dst = append(dst, `{"traceId":"`...)
	dst = hex.AppendEncode(dst, e.trace[:])
	dst = append(dst, `","spanId":"`...)
	dst = hex.AppendEncode(dst, e.span[:])
	flags := traceSampled | spanRemoteKnown
	if e.parent != [8]byte{} {
		flags |= spanRemote
		dst = append(dst, `","parentSpanId":"`...)
		dst = hex.AppendEncode(dst, e.parent[:])
	}
	dst = append(dst, `","kind":2`...) // a server's
	dst = appendNumber(dst, "flags", int64(flags))
	dst = appendText(dst, "name", name, maxLoggedToken)
	dst = appendNanos(dst, "startTimeUnixNano", e.started)
	dst = appendNanos(dst, "endTimeUnixNano", e.started.Add(e.took))
	dst = append(dst, `,"attributes":[`...)
	dst = appendAttribute(dst, "http.request.method", method, maxLoggedToken)
	if method != string(e.method) {
		dst = appendAttribute(append(dst, ','), "http.request.method_original", e.method, maxLoggedToken)
	}
	dst = appendTarget(dst, e)
	dst = appendOutcome(dst, e)
	dst = append(dst, `],"status":{`...)
	if e.failed() {
		dst = append(dst, `"code":2`...)
	}
	return append(dst, "}},\n"...)
}

// Bits of a span's flags beyond those of its trace.
const (
	spanRemoteKnown = 0x100 // the next bit says something
	spanRemote      = 0x200 // the parent is another process's
)

func appendTarget(dst []byte, e *accessEntry) []byte {
	path, _, _ := bytes.Cut(e.target, []byte{'?'})
	scheme := "http"
	if e.secure {
		scheme = "https"
	}
	dst = appendAttribute(append(dst, ','), "url.scheme", scheme, maxLoggedToken)
	dst = appendAttribute(append(dst, ','), "url.path", path, maxLogged)
	dst = appendAttribute(append(dst, ','), "client.address", e.client, maxLoggedToken)
	dst = appendAttribute(append(dst, ','), "starling.request_id", e.requestID, maxLoggedName)
	if e.pool != "" {
		dst = appendAttribute(append(dst, ','), "starling.pool", e.pool, maxLoggedName)
	}
	if e.backend != "" {
		dst = appendAttribute(append(dst, ','), "starling.backend", e.backend, maxLoggedName)
	}
	if e.lookup != "" {
		dst = appendAttribute(append(dst, ','), "starling.session_lookup", e.lookup, maxLoggedToken)
		dst = appendCount(dst, "starling.session_epoch", int64(e.epoch))
	}
	return dst
}

func appendOutcome(dst []byte, e *accessEntry) []byte {
	dst = appendAttribute(append(dst, ','), "starling.reason", e.reason, maxLoggedToken)
	dst = appendCount(dst, "starling.attempts", int64(e.attempts))
	dst = appendCount(dst, "starling.bytes_in", e.in)
	dst = appendCount(dst, "starling.bytes_out", e.out)
	if e.queued > 0 {
		dst = appendSeconds(dst, "starling.queue_wait", e.queued)
	}
	if e.firstByte > 0 {
		dst = appendSeconds(dst, "starling.time_to_first_byte", e.firstByte)
	}
	if e.status != 0 {
		dst = appendCount(dst, "http.response.status_code", int64(e.status))
	}
	if e.failed() {
		kind := string(e.reason)
		if e.code != "" {
			kind = string(e.code)
		} else if e.reason == backend.Done {
			kind = strconv.Itoa(e.status)
		}
		dst = appendAttribute(append(dst, ','), "error.type", kind, maxLoggedToken)
	}
	return dst
}

// failed tells whether the server's side of the stream went wrong.
func (e *accessEntry) failed() bool {
	switch e.reason {
	case backend.BackendBroke, backend.BackendTimeout, backend.BackendRefused, backend.Idle, backend.Deadline, backend.Drained:
		return true
	}
	return e.status >= 500
}

// knownMethod is the method, and the span's name, in words of which there are
// only a few.
func knownMethod(m []byte) (method, name string) {
	switch string(m) {
	case "GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH":
		return string(m), string(m)
	}
	return "_OTHER", "HTTP"
}

func appendAttribute[T ~string | ~[]byte](dst []byte, key string, value T, limit int) []byte {
	dst = append(dst, `{"key":"`...)
	dst = append(dst, key...)
	dst = append(dst, `","value":{"stringValue":`...)
	dst = appendQuoted(dst, value, limit)
	return append(dst, "}}"...)
}

// appendCount writes 64-bit numbers as the JSON form of protobuf does: in
// quotes.
func appendCount(dst []byte, key string, n int64) []byte {
	dst = append(dst, `,{"key":"`...)
	dst = append(dst, key...)
	dst = append(dst, `","value":{"intValue":"`...)
	dst = strconv.AppendInt(dst, n, 10)
	return append(dst, `"}}`...)
}

func appendSeconds(dst []byte, key string, d time.Duration) []byte {
	dst = append(dst, `,{"key":"`...)
	dst = append(dst, key...)
	dst = append(dst, `","value":{"doubleValue":`...)
	dst = strconv.AppendFloat(dst, d.Seconds(), 'g', -1, 64)
	return append(dst, "}}"...)
}

func appendNanos(dst []byte, key string, t time.Time) []byte {
	dst = append(appendKey(dst, key), '"')
	dst = strconv.AppendInt(dst, t.UnixNano(), 10)
	return append(dst, '"')
}

// rejected is how many spans of a request the collector says it did not take.
func rejected(answer []byte) float64 {
	var a struct {
		PartialSuccess struct {
			RejectedSpans json.Number `json:"rejectedSpans"`
		} `json:"partialSuccess"`
	}
	if json.Unmarshal(answer, &a) != nil {
		return 0 // an answer in words, or none
	}
	n, _ := a.PartialSuccess.RejectedSpans.Int64()
	return float64(max(n, 0))
}
