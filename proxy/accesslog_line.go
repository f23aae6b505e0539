package proxy

import (
	"encoding/hex"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/starling-lb/starling/proxy/backend"
)

// What is logged of a text, in bytes of its own. Clients choose hosts, targets,
// methods and, where they are trusted, request ids.
const (
	maxLogged      = 2 << 10 // host and target
	maxLoggedName  = 256     // request id, pool, backend
	maxLoggedToken = 64      // client, method, reason, lookup

	// maxAccessLine bounds a line: each byte may become six, such as \u0000.
	maxAccessLine = 6*(2*maxLogged+3*maxLoggedName+4*maxLoggedToken) + 1<<10
)

// accessEntry is what the access log says of a stream. Texts are read only
// while it is recorded.
type accessEntry struct {
	started      time.Time
	requestID    []byte
	client       string
	method       []byte
	host         []byte
	target       []byte
	status       int          // 0: the client was sent no head
	code         backend.Code // of an answer of starling's own
	pool         string
	backend      string
	epoch        uint32 // of the session's binding; 0: it has none
	lookup       Lookup // how its session was found; empty: the pool has none
	attempts     int
	queued       time.Duration
	connected    time.Duration
	firstByte    time.Duration // to the head of the answer; 0: none came
	in, out      int64         // bytes
	events       int64         // of a text/event-stream
	took         time.Duration
	reason       backend.Reason
	secure       bool     // the client came by TLS
	trace        [16]byte // zero: no trace
	span         [8]byte  // the stream's own
	parent       [8]byte  // zero: the trace began here
	sessionStale bool     // another turn of its session may have run elsewhere beside it
	stale        bool     // a kept connection had been closed, and the request went out again on a new one
}

// appendAccessLine appends one JSON object and a line feed, whatever bytes the
// entry holds.
func appendAccessLine(dst []byte, e *accessEntry) []byte {
	dst = append(dst, `{"ts":"`...)
	dst = e.started.UTC().AppendFormat(dst, "2006-01-02T15:04:05.000Z07:00")
	dst = append(dst, '"')
	dst = appendText(dst, "request_id", e.requestID, maxLoggedName)
	dst = appendText(dst, "client", e.client, maxLoggedToken)
	dst = appendText(dst, "method", e.method, maxLoggedToken)
	dst = appendText(dst, "host", e.host, maxLogged)
	dst = appendText(dst, "target", e.target, maxLogged)
	dst = appendNumber(dst, "status", int64(e.status))
	dst = appendText(dst, "code", e.code, maxLoggedToken)
	dst = appendText(dst, "pool", e.pool, maxLoggedName)
	dst = appendText(dst, "backend", e.backend, maxLoggedName)
	dst = strconv.AppendUint(appendKey(dst, "session_epoch"), uint64(e.epoch), 10)
	dst = appendText(dst, "lookup", e.lookup, maxLoggedToken)
	dst = strconv.AppendBool(appendKey(dst, "session_stale"), e.sessionStale)
	dst = appendNumber(dst, "attempts", int64(e.attempts))
	dst = appendMillis(dst, "queue_ms", e.queued)
	dst = appendMillis(dst, "connect_ms", e.connected)
	if e.firstByte > 0 {
		dst = appendMillis(dst, "ttfb_ms", e.firstByte)
	} else {
		dst = append(appendKey(dst, "ttfb_ms"), "null"...)
	}
	dst = appendNumber(dst, "bytes_in", e.in)
	dst = appendNumber(dst, "bytes_out", e.out)
	dst = appendNumber(dst, "events", e.events)
	dst = appendMillis(dst, "duration_ms", e.took)
	dst = appendText(dst, "reason", e.reason, maxLoggedToken)
	dst = append(appendKey(dst, "trace_id"), '"')
	if e.trace != [16]byte{} {
		dst = hex.AppendEncode(dst, e.trace[:])
	}
	dst = append(dst, '"')
	dst = strconv.AppendBool(appendKey(dst, "stale"), e.stale)
	return append(dst, "}\n"...)
}

func appendKey(dst []byte, key string) []byte {
	dst = append(dst, ',', '"')
	dst = append(dst, key...)
	return append(dst, '"', ':')
}

func appendNumber(dst []byte, key string, n int64) []byte {
	return strconv.AppendInt(appendKey(dst, key), n, 10)
}

// appendMillis appends d in milliseconds with three decimals.
func appendMillis(dst []byte, key string, d time.Duration) []byte {
	micros := max(d, 0).Microseconds()
	dst = strconv.AppendInt(appendKey(dst, key), micros/1000, 10)
	return append(dst, '.', byte('0'+micros/100%10), byte('0'+micros/10%10), byte('0'+micros%10))
}

// appendText appends the first limit bytes of s as a JSON string. Control
// characters are escaped, the high ones too, so that the line is safe to look
// at in a terminal; what is no UTF-8 becomes U+FFFD.
func appendText[T ~string | ~[]byte](dst []byte, key string, s T, limit int) []byte {
	return appendQuoted(appendKey(dst, key), s, limit)
}

func appendQuoted[T ~string | ~[]byte](dst []byte, s T, limit int) []byte {
	dst = append(dst, '"')
	s = shorten(s, limit)
	for i := 0; i < len(s); {
		b := s[i]
		switch {
		case b == '"' || b == '\\':
			dst = append(dst, '\\', b)
		case b >= ' ' && b < 0x7f:
			dst = append(dst, b)
		case b <= 0x7f:
			dst = appendEscape(dst, b)
		default:
			r, size := utf8.DecodeRuneInString(string(s[i:min(i+utf8.UTFMax, len(s))]))
			switch {
			case r == utf8.RuneError && size == 1:
				dst = append(dst, `\ufffd`...)
			case r <= 0x9f:
				dst = appendEscape(dst, byte(r))
			default:
				dst = append(dst, s[i:i+size]...)
			}
			i += size
			continue
		}
		i++
	}
	return append(dst, '"')
}

func appendEscape(dst []byte, b byte) []byte {
	const digits = "0123456789abcdef"
	return append(dst, '\\', 'u', '0', '0', digits[b>>4], digits[b&0xf])
}

// shorten cuts s down to limit bytes, not through a character.
func shorten[T ~string | ~[]byte](s T, limit int) T {
	if len(s) <= limit {
		return s
	}
	for back := range utf8.UTFMax {
		if utf8.RuneStart(s[limit-back]) {
			return s[:limit-back]
		}
	}
	return s[:limit]
}
