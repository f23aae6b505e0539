package wire

import (
	"bytes"
	"iter"
	"slices"
)

// Lengths of a body that is not a count of bytes.
const (
	Chunked    int64 = -1
	UntilClose int64 = -2
)

// Request is a parsed request head. It owns its bytes; they stay as they are
// until the next parse.
type Request struct {
	Method []byte
	Target []byte // as it goes to the backend: origin form, or * of OPTIONS
	Host   []byte // the authority the request is for, with its port
	Length int64  // bytes of body, or Chunked

	HTTP10   bool
	Close    bool   // the client wants the connection closed after the answer
	Expect   bool   // the client waits for a 100 before it sends the body
	Upgrade  []byte // protocols the client asks to change to; nil: none
	Trailers bool   // the client takes trailers

	sheet
}

// IsHead tells whether the answer has no body whatever its framing says.
func (q *Request) IsHead() bool { return string(q.Method) == "HEAD" }

// Field is the value of the first field of that name (lower case).
func (q *Request) Field(name string) ([]byte, bool) { return find(q.fields, name) }

// FieldFold is Field for a name in any letter case.
func (q *Request) FieldFold(name string) ([]byte, bool) {
	for i := range q.fields {
		if f := &q.fields[i]; len(f.name) == len(name) && foldBoth(f.name, name) {
			return f.value, true
		}
	}
	return nil, false
}

// Values are those of all fields of that name in any letter case, in their order.
func (q *Request) Values(name string) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for i := range q.fields {
			if f := &q.fields[i]; len(f.name) == len(name) && foldBoth(f.name, name) && !yield(f.value) {
				return
			}
		}
	}
}

// Idempotent tells whether the request may be sent twice with the effect of
// once (RFC 9110 section 9.2.2).
func (q *Request) Idempotent() bool {
	switch string(q.Method) {
	case "GET", "HEAD", "OPTIONS", "PUT", "DELETE", "TRACE":
		return true
	}
	return false
}

// HasFieldValue tells whether any field of that name (lower case) has just
// this value.
func (q *Request) HasFieldValue(name, value string) bool {
	for i := range q.fields {
		if fold(q.fields[i].name, name) && string(q.fields[i].value) == value {
			return true
		}
	}
	return false
}

// Gist is what is left of a request whose head is given back: its method,
// target and authority.
type Gist struct {
	words                string
	methodEnd, targetEnd int
}

// Gist is the request's.
func (q *Request) Gist() Gist {
	return Gist{
		words:     string(q.Method) + string(q.Target) + string(q.Host),
		methodEnd: len(q.Method), targetEnd: len(q.Method) + len(q.Target),
	}
}

// Recall makes q a request of which nothing but the gist is known.
func (q *Request) Recall(g Gist) {
	q.Clear()
	words := []byte(g.words)
	q.Method, q.Target, q.Host = words[:g.methodEnd:g.methodEnd], words[g.methodEnd:g.targetEnd:g.targetEnd], words[g.targetEnd:]
}

// Clear forgets the head that was read: what is asked of a request that could
// not be read must not be answered by the one before.
func (q *Request) Clear() {
	q.Method, q.Target, q.Host, q.Upgrade, q.Length = nil, nil, nil, nil, 0
	q.HTTP10, q.Close, q.Expect, q.Trailers = false, false, false, false
	q.fields = q.fields[:0]
}

// Path is the target without its query.
func (q *Request) Path() []byte {
	if i := bytes.IndexByte(q.Target, '?'); i >= 0 {
		return q.Target[:i]
	}
	return q.Target
}

// parse reads one head, empty line included. Two parsers look at it: ours is
// strict about what others would read differently, and fasthttp's gives a
// second opinion on where the body ends; where they differ nobody is right.
func (q *Request) parse(head []byte) error {
	q.Clear()
	q.open()
	defer q.keep()
	q.raw = append(q.raw[:0], head...)
	first := bytes.IndexByte(q.raw, '\n') + 1
	var err error
	if q.fields, err = scanFields(q.raw[first:], q.fields); err != nil {
		return err
	}
	if err := q.requestLine(q.raw[:first]); err != nil {
		return err
	}
	if slices.ContainsFunc(q.fields, func(f field) bool { return f.kind == framingAlias }) {
		return ErrFraming // the backend may count otherwise
	}
	if q.Length, err = framing(q.fields); err != nil {
		return err
	}
	if q.Length == UntilClose {
		q.Length = 0 // a request without framing has no body (RFC 9112 section 6.3)
	}
	if err := q.connectionFields(); err != nil {
		return err
	}
	length, err := q.stock.jury.request(q.raw)
	if err != nil {
		return err
	}
	if length != q.Length {
		return ErrFraming
	}
	return nil
}

// requestLine takes "METHOD SP target SP HTTP/1.x CRLF" apart.
func (q *Request) requestLine(line []byte) error {
	if len(line) < 2 || line[len(line)-2] != '\r' {
		return ErrMalformed
	}
	line = line[:len(line)-2]
	method, rest, ok := bytes.Cut(line, []byte{' '})
	target, version, ok2 := bytes.Cut(rest, []byte{' '})
	if !ok || !ok2 || !isToken(method) || len(target) == 0 {
		return ErrMalformed
	}
	switch {
	case string(version) == "HTTP/1.1":
		q.HTTP10 = false
	case string(version) == "HTTP/1.0":
		q.HTTP10 = true
	case len(version) == 8 && string(version[:5]) == "HTTP/" && version[6] == '.':
		return ErrVersion
	default:
		return ErrMalformed
	}
	for _, b := range target {
		if b <= ' ' || b == 0x7f || b == '#' {
			return ErrMalformed
		}
	}
	q.Method, q.Target = method, target
	return q.authority()
}

// authority finds whom the request is for, and brings an absolute target into
// origin form: its authority stands above the Host field (RFC 9112 section
// 3.2.2).
func (q *Request) authority() error {
	q.Host = nil
	if string(q.Method) == "CONNECT" {
		return ErrMalformed // whatever its target looks like: no tunnel to anywhere starts here
	}
	hosts := 0
	for i := range q.fields {
		if q.fields[i].kind == host {
			q.Host = q.fields[i].value
			hosts++
		}
	}
	if hosts > 1 || hosts == 0 && !q.HTTP10 || !validAuthority(q.Host) {
		return ErrMalformed
	}
	switch {
	case q.Target[0] == '/':
		return nil
	case string(q.Target) == "*" && string(q.Method) == "OPTIONS":
		return nil
	}
	rest, ok := cutScheme(q.Target)
	if !ok {
		return ErrMalformed
	}
	i := bytes.IndexAny(rest, "/?")
	if i < 0 {
		i = len(rest)
	}
	if i == 0 || !validAuthority(rest[:i]) {
		return ErrMalformed
	}
	q.Host = rest[:i]
	q.Target = rest[i:]
	if len(q.Target) == 0 || q.Target[0] != '/' { // an empty path is sent as /, or as * for OPTIONS without a query
		if len(q.Target) == 0 && string(q.Method) == "OPTIONS" {
			q.Target = []byte("*")
		} else {
			q.Target = append([]byte("/"), q.Target...)
		}
	}
	return nil
}

func cutScheme(target []byte) ([]byte, bool) {
	for _, scheme := range []string{"http://", "https://"} {
		if len(target) > len(scheme) && fold(target[:len(scheme)], scheme) {
			return target[len(scheme):], true
		}
	}
	return nil, false
}

// validAuthority accepts what may stand in host[:port]; user names are refused.
func validAuthority(p []byte) bool {
	for _, b := range p {
		switch {
		case b >= 'a' && b <= 'z', b >= 'A' && b <= 'Z', b >= '0' && b <= '9', b >= 0x80:
		case b == '.', b == '-', b == '_', b == ':', b == '[', b == ']', b == '%', b == '~', b == '!', b == '$', b == '&',
			b == '\'', b == '(', b == ')', b == '*', b == '+', b == ';', b == '=':
		default:
			return false
		}
	}
	return true
}

// maySwitch tells whether a list of protocols is one (RFC 9110 section 7.8),
// without h2c, which would carry requests past every rule in here.
func maySwitch(list []byte) bool {
	some := false
	for {
		element, rest, ok := nextElement(list)
		if !ok {
			return some
		}
		name, version, versioned := bytes.Cut(element, []byte{'/'})
		if len(element) > 0 && (!isToken(name) || versioned && !isToken(version) || fold(name, "h2c")) {
			return false
		}
		some = some || len(element) > 0
		list = rest
	}
}

// connectionFields reads what the client wants of this connection.
func (q *Request) connectionFields() error {
	q.Expect, q.Upgrade, q.Trailers = false, nil, false
	q.Close = closes(q.fields, q.HTTP10)
	upgrading := false
	for i := range q.fields {
		f := &q.fields[i]
		switch f.kind {
		case connection:
			upgrading = upgrading || has(f.value, "upgrade")
		case te:
			q.Trailers = q.Trailers || has(f.value, "trailers")
		case expect:
			q.Expect = q.Expect || !q.HTTP10 && fold(f.value, "100-continue")
		case upgrade:
			if q.Upgrade == nil && maySwitch(f.value) {
				q.Upgrade = f.value
			}
		}
	}
	if !upgrading || q.HTTP10 {
		q.Upgrade = nil
	}
	if q.Length == 0 {
		q.Expect = false
	}
	return nil
}
