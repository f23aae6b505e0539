package wire

import (
	"bytes"
	"strconv"
)

// LastHop tells whether the request may go no further: an OPTIONS or TRACE
// whose Max-Forwards is zero (RFC 9110 section 7.6.2). Other methods have no
// use for the field.
func (q *Request) LastHop() bool {
	if !q.countsHops() {
		return false
	}
	for i := range q.fields {
		if f := &q.fields[i]; f.kind == maxForwards && isNumber(f.value) && len(bytes.TrimLeft(f.value, "0")) == 0 {
			return true
		}
	}
	return false
}

func (q *Request) countsHops() bool {
	return string(q.Method) == "OPTIONS" || string(q.Method) == "TRACE"
}

// appendMaxForwards appends the field with one hop less. What is no number is
// passed on as it came: it binds nobody.
func (q *Request) appendMaxForwards(dst []byte, f *field) []byte {
	if !q.countsHops() || !isNumber(f.value) {
		return append(dst, f.line...)
	}
	const most = 1e9 // more than any chain has
	n, ok := parseLength(bytes.TrimLeft(f.value, "0"))
	if !ok || n > most {
		n = most
	}
	dst = append(dst, f.name...)
	dst = append(dst, ": "...)
	dst = strconv.AppendInt(dst, n-1, 10)
	return append(dst, "\r\n"...)
}

func isNumber(p []byte) bool {
	for _, b := range p {
		if b < '0' || b > '9' {
			return false
		}
	}
	return len(p) > 0
}

// Traceparent is the value of the only field of that name; ok is false where
// it is missing, and where there are several, which nobody can continue.
func (q *Request) Traceparent() (value []byte, ok bool) {
	for i := range q.fields {
		if f := &q.fields[i]; f.kind == traceParent {
			if ok {
				return nil, false
			}
			value, ok = f.value, true
		}
	}
	return value, ok
}
