package wire

import (
	"strconv"
	"time"
)

// Forwarding is what a request is told on its way to a backend besides its own
// fields.
type Forwarding struct {
	Client    string // the client's address without port
	TLS       bool   // the client came by TLS
	Trusted   bool   // the client is a proxy whose own X-Forwarded-* stand
	Host      string // replaces the request's authority; empty: it stays
	IDName    string // name of the request id field; empty: none
	RequestID []byte // replaces the client's
	Trace     []byte // replaces the client's traceparent; empty: that goes on as it came, the tracestate too
	NewTrace  bool   // the trace begins here: the client's tracestate says nothing of it
	EpochName string // name of the field that tells the session's epoch, which no client can write; empty: none
	Epoch     uint32 // 0: there is none to tell
}

// AppendForward appends the head as it goes to the backend: the client's own
// lines in their order and case, less those that end at this hop, and then
// ours. Fields are taken away before ours are added, so that no client can
// have ours removed by naming them in Connection.
func (q *Request) AppendForward(dst []byte, w Forwarding) []byte {
	dst = append(dst, q.Method...)
	dst = append(dst, ' ')
	dst = append(dst, q.Target...)
	dst = append(dst, " HTTP/1.1\r\n"...)
	dst = q.appendHost(dst, w.Host)
	search := nominates(q.fields)
	for i := range q.fields {
		f := &q.fields[i]
		if q.ends(f, w) || search && nominated(q.fields, f) {
			continue
		}
		if f.kind == maxForwards {
			dst = q.appendMaxForwards(dst, f)
			continue
		}
		dst = append(dst, f.line...)
	}
	return q.appendOurs(dst, w)
}

func (q *Request) appendHost(dst []byte, other string) []byte {
	switch {
	case other != "":
		return appendField(dst, "Host", other)
	case q.Host == nil: // HTTP/1.0 may leave it out, HTTP/1.1 may not
		return append(dst, "Host: \r\n"...)
	}
	for i := range q.fields {
		if f := &q.fields[i]; f.kind == host && string(f.value) == string(q.Host) {
			return append(dst, f.line...)
		}
	}
	dst = append(dst, "Host: "...)
	dst = append(dst, q.Host...)
	return append(dst, "\r\n"...)
}

// ends tells whether a field of the client goes no further by its kind.
func (q *Request) ends(f *field, w Forwarding) bool {
	switch f.kind {
	case plain:
		return w.IDName != "" && len(f.name) == len(w.IDName) && looksLike(f.name, w.IDName) ||
			w.EpochName != "" && len(f.name) == len(w.EpochName) && looksLike(f.name, w.EpochName)
	case host, hopByHop, connection, te, upgrade, forwardedAlias:
		return true
	case expect:
		return !q.Expect
	case forwardedFor:
		return true // written anew, the trusted client's value in front
	case forwardedProto, forwardedHost, forwardedElse:
		return !w.Trusted
	case traceParent:
		return len(w.Trace) > 0
	case traceState:
		return len(w.Trace) > 0 && w.NewTrace
	}
	return false
}

func (q *Request) appendOurs(dst []byte, w Forwarding) []byte {
	if q.Upgrade != nil {
		dst = append(dst, "Connection: upgrade\r\nUpgrade: "...)
		dst = append(dst, q.Upgrade...)
		dst = append(dst, "\r\n"...)
	} else if q.Trailers {
		dst = append(dst, "Connection: TE\r\nTE: trailers\r\n"...)
	}
	via := "Via: 1.1 starling\r\nX-Forwarded-For: "
	if q.HTTP10 { // Via names the version that was received (RFC 9110 section 7.6.3)
		via = "Via: 1.0 starling\r\nX-Forwarded-For: "
	}
	dst = append(dst, via...)
	if w.Trusted {
		for i := range q.fields {
			if f := &q.fields[i]; f.kind == forwardedFor {
				dst = append(dst, f.value...)
				dst = append(dst, ", "...)
			}
		}
	}
	dst = append(dst, w.Client...)
	dst = append(dst, "\r\n"...)
	if _, there := q.Field("x-forwarded-proto"); !there || !w.Trusted {
		proto := "http"
		if w.TLS {
			proto = "https"
		}
		dst = appendField(dst, "X-Forwarded-Proto", proto)
	}
	if _, there := q.Field("x-forwarded-host"); !there || !w.Trusted {
		dst = append(dst, "X-Forwarded-Host: "...)
		dst = append(dst, q.Host...)
		dst = append(dst, "\r\n"...)
	}
	if w.IDName != "" {
		dst = appendField(dst, w.IDName, w.RequestID)
	}
	if len(w.Trace) > 0 {
		dst = appendField(dst, "Traceparent", w.Trace)
	}
	if w.EpochName != "" && w.Epoch != 0 {
		var room [10]byte
		dst = appendField(dst, w.EpochName, strconv.AppendUint(room[:0], uint64(w.Epoch), 10))
	}
	return append(dst, "\r\n"...)
}

// Answering is what a response is told on its way to the client.
type Answering struct {
	HTTP10  bool   // the client speaks HTTP/1.0
	Close   bool   // the client's connection ends after this answer
	Backend string // X-Starling-Backend; empty: none
	Cookie  []byte // Set-Cookie; empty: none. No cache may give the answer to others then
}

// AppendAnswer appends the head as it goes to the client. An answer without a
// Date gets one (RFC 9110 section 6.6.1).
func (p *Response) AppendAnswer(dst []byte, a Answering) []byte {
	dst = append(dst, "HTTP/1.1 "...)
	dst = append(dst, p.reason...)
	if len(p.reason) == 3 {
		dst = append(dst, ' ') // stands before an empty reason too (RFC 9112 section 4)
	}
	dst = append(dst, "\r\n"...)
	dated := false
	search := nominates(p.fields)
	for i := range p.fields {
		f := &p.fields[i]
		if p.ends(f, a) || search && nominated(p.fields, f) {
			continue
		}
		dated = dated || f.kind == date
		dst = append(dst, f.line...)
	}
	if !dated && !p.Interim() {
		dst = append(dst, p.stock.date(time.Now())...)
	}
	if a.Backend != "" && !p.Interim() {
		dst = appendField(dst, "X-Starling-Backend", a.Backend)
	}
	if len(a.Cookie) > 0 && !p.Interim() {
		dst = appendField(dst, "Set-Cookie", a.Cookie)
		dst = append(dst, "Cache-Control: private\r\n"...)
	}
	switch {
	case p.Status < 200:
	case a.Close && !a.HTTP10:
		dst = append(dst, "Connection: close\r\n"...)
	case a.HTTP10 && !a.Close:
		dst = append(dst, "Connection: keep-alive\r\n"...)
	}
	return append(dst, "\r\n"...)
}

func (p *Response) ends(f *field, a Answering) bool {
	switch f.kind {
	case hopByHop, te:
		return true
	case connection, upgrade:
		return p.Status != 101
	case transferEncoding:
		return a.HTTP10 || p.Status == 204 || p.Status == 304 || p.Status < 200
	case contentLength:
		return p.tainted || p.Status == 204 || p.Status < 200
	}
	return false
}

// nominates tells whether any Connection field names something beyond what
// Connection is about, so that the common head is copied without a search.
func nominates(fields []field) bool {
	for i := range fields {
		if f := &fields[i]; f.kind == connection && !fold(f.value, "keep-alive") && !fold(f.value, "close") && !fold(f.value, "upgrade") {
			return true
		}
	}
	return false
}

func appendField[V string | []byte](dst []byte, name string, value V) []byte {
	dst = append(dst, name...)
	dst = append(dst, ": "...)
	dst = append(dst, value...)
	return append(dst, "\r\n"...)
}

func foldBoth(a []byte, b string) bool {
	for i := range a {
		if lower(a[i]) != lower(b[i]) {
			return false
		}
	}
	return true
}

// looksLike is foldBoth for names that programs behind some gateways cannot tell
// apart: they read X_A for X-A. Both are of one length.
func looksLike(a []byte, b string) bool {
	for i := range a {
		x, y := lower(a[i]), lower(b[i])
		if x != y && (x != '_' && x != '-' || y != '_' && y != '-') {
			return false
		}
	}
	return true
}
