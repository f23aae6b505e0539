package wire

import (
	"bytes"
	"errors"
)

// Errors of a head. Whoever answers decides the status by them.
var (
	ErrMalformed = errors.New("malformed head")
	ErrFraming   = errors.New("ambiguous body framing")
	ErrCoding    = errors.New("unsupported transfer coding")
	ErrVersion   = errors.New("unsupported HTTP version")
	ErrTooLarge  = errors.New("head too large")

	ErrBodyTooLarge = errors.New("body too large")
)

// maxFields bounds the lines of a head, whatever their size.
const maxFields = 1000

// kind marks the fields that a proxy has to act on.
type kind uint8

const (
	plain    kind = iota
	hopByHop      // goes no further than the next hop, whoever sent it
	host
	connection
	contentLength
	transferEncoding
	te
	upgrade
	expect
	date
	forwardedFor
	forwardedProto
	forwardedHost
	forwardedElse // says of the client what others write: Forwarded, X-Real-IP, any other X-Forwarded-*
	maxForwards
	traceParent
	traceState
	forwardedAlias // is taken for one of the forwarded fields by programs that read X_A for X-A
	framingAlias   // likewise for one that says how long the body is
)

// field is one line of a head, as it came.
type field struct {
	kind  kind
	name  []byte
	value []byte // without the blanks around it
	line  []byte // name, colon, value and CRLF
}

// scanFields checks and indexes the lines after the first; raw ends with the
// empty line. What a lenient parser would mend is refused: line ends without
// CR, folding, blanks around names, control bytes.
func scanFields(raw []byte, fields []field) ([]field, error) {
	fields = fields[:0]
	for {
		i := bytes.IndexByte(raw, '\n')
		if i < 1 || raw[i-1] != '\r' {
			return fields, ErrMalformed
		}
		if i == 1 {
			return fields, nil
		}
		line := raw[:i+1]
		colon := bytes.IndexByte(line, ':')
		if colon < 1 || !isToken(line[:colon]) {
			return fields, ErrMalformed
		}
		if len(fields) == maxFields {
			return fields, ErrTooLarge
		}
		for _, b := range line[colon+1 : i-1] {
			if !isValueByte(b) {
				return fields, ErrMalformed
			}
		}
		name := line[:colon]
		is := kindOf(name)
		if is == plain && bytes.IndexByte(name, '_') > 0 {
			is = aliasOf(name)
		}
		fields = append(fields, field{kind: is, name: name, value: trim(line[colon+1 : i-1]), line: line})
		raw = raw[i+1:]
	}
}

func kindOf(name []byte) kind {
	k := listed(name)
	if n := len(forwardedPrefix); k == plain && len(name) > n && fold(name[:n], forwardedPrefix) {
		return forwardedElse
	}
	return k
}

// forwardedPrefix is how names begin that say for whom a request is forwarded.
const forwardedPrefix = "x-forwarded-"

func listed(name []byte) kind {
	switch len(name) {
	case 2:
		return of(name, "te", te)
	case 4:
		if lower(name[0]) == 'h' {
			return of(name, "host", host)
		}
		return of(name, "date", date)
	case 6:
		return of(name, "expect", expect)
	case 7:
		return of(name, "upgrade", upgrade)
	case 9:
		return max(of(name, "forwarded", forwardedElse), of(name, "x-real-ip", forwardedElse), of(name, "client-ip", forwardedElse))
	case 10:
		return max(of(name, "connection", connection), of(name, "keep-alive", hopByHop), of(name, "tracestate", traceState))
	case 11:
		return max(of(name, "traceparent", traceParent), of(name, "x-client-ip", forwardedElse))
	case 12:
		return of(name, "max-forwards", maxForwards)
	case 14:
		return max(of(name, "content-length", contentLength), of(name, "true-client-ip", forwardedElse))
	case 15:
		return max(of(name, "x-forwarded-for", forwardedFor), of(name, "front-end-https", forwardedElse))
	case 16:
		return max(of(name, "x-forwarded-host", forwardedHost), of(name, "proxy-connection", hopByHop))
	case 17:
		return max(of(name, "transfer-encoding", transferEncoding), of(name, "x-forwarded-proto", forwardedProto))
	case 19:
		return of(name, "x-cluster-client-ip", forwardedElse)
	}
	return plain
}

// aliasOf is what gateways to programs (CGI, WSGI) take a name with _ for: they read
// X_A for X-A.
func aliasOf(name []byte) kind {
	if n := len(forwardedPrefix); len(name) > n && looksLike(name[:n], forwardedPrefix) {
		return forwardedAlias
	}
	for _, of := range []struct {
		name string
		kind kind
	}{
		{"x-real-ip", forwardedAlias}, {"client-ip", forwardedAlias}, {"x-client-ip", forwardedAlias}, {"true-client-ip", forwardedAlias},
		{"x-cluster-client-ip", forwardedAlias}, {"front-end-https", forwardedAlias},
		{"content-length", framingAlias}, {"transfer-encoding", framingAlias},
	} {
		if len(name) == len(of.name) && looksLike(name, of.name) {
			return of.kind
		}
	}
	return plain
}

// of is k for a field of that name, which is lower case; else plain, the least
// of all.
func of(name []byte, want string, k kind) kind {
	if fold(name, want) {
		return k
	}
	return plain
}

// headEnd is the length of the head at the start of p, its empty line
// included; 0 while it is not complete. from says how much of p was searched
// before. A line feed alone ends a line here too, so that the parser gets to
// see and refuse it, instead of waiting for more.
func headEnd(p []byte, from int) int {
	for i := max(0, from-3); i < len(p); {
		j := bytes.IndexByte(p[i:], '\n')
		if j < 0 {
			return 0
		}
		i += j + 1
		switch rest := p[i:]; {
		case len(rest) > 0 && rest[0] == '\n':
			return i + 1
		case len(rest) > 1 && rest[0] == '\r' && rest[1] == '\n':
			return i + 2
		}
	}
	return 0
}

// find returns the value of the first field of that name, which is lower case.
func find(fields []field, name string) ([]byte, bool) {
	for i := range fields {
		if fold(fields[i].name, name) {
			return fields[i].value, true
		}
	}
	return nil, false
}

// framing reads Content-Length and Transfer-Encoding: length is the body's, or
// -1 for chunked, or -2 where neither field is there.
func framing(fields []field) (length int64, err error) {
	length = -2
	coded := false
	for i := range fields {
		f := &fields[i]
		switch f.kind {
		case contentLength:
			n, ok := parseLength(f.value)
			if !ok || length != -2 {
				return 0, ErrFraming
			}
			length = n
		case transferEncoding:
			if coded {
				return 0, ErrFraming
			}
			if !fold(f.value, "chunked") {
				return 0, ErrCoding
			}
			coded = true
		}
	}
	if coded && length != -2 {
		return -1, ErrFraming
	}
	if coded {
		return -1, nil
	}
	return length, nil
}

// parseLength reads a Content-Length: digits only, below 2^62.
func parseLength(p []byte) (int64, bool) {
	if len(p) == 0 || len(p) > 18 {
		return 0, false
	}
	var n int64
	for _, b := range p {
		if b < '0' || b > '9' {
			return 0, false
		}
		n = n*10 + int64(b-'0')
	}
	return n, true
}

// closes tells whether the connection ends after the message: close stands
// above keep-alive, on whichever line (RFC 9112 section 9.3).
func closes(fields []field, http10 bool) bool {
	kept := !http10
	for i := range fields {
		if f := &fields[i]; f.kind == connection {
			if has(f.value, "close") {
				return true
			}
			kept = kept || has(f.value, "keep-alive")
		}
	}
	return !kept
}

// nominated tells whether a Connection field names this one, so that it goes
// no further (RFC 9110 section 7.6.1). Framing, Host and what says for whom a
// request is forwarded cannot be taken away like that; Connection and Upgrade
// have rules of their own.
func nominated(fields []field, f *field) bool {
	switch f.kind {
	case host, contentLength, transferEncoding, connection, upgrade, forwardedFor, forwardedProto, forwardedHost, forwardedElse:
		return false
	}
	for i := range fields {
		if fields[i].kind == connection && names(fields[i].value, f.name) {
			return true
		}
	}
	return false
}

// names is has for a name in any letter case.
func names(list, want []byte) bool {
	for {
		element, rest, ok := nextElement(list)
		if !ok {
			return false
		}
		if bytes.EqualFold(element, want) {
			return true
		}
		list = rest
	}
}
