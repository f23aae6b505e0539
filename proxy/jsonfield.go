package proxy

import (
	"bytes"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// fieldState is what is known of a field after a part of the document.
type fieldState uint8

const (
	fieldUnknown   fieldState = iota // more of the document is needed
	fieldFound                       // a string, number, true or false
	fieldAbsent                      // the object ended without it, it has no such value, or there is no object
	fieldMalformed                   // no JSON, or nested deeper than maxNesting
)

const maxNesting = 64 // objects and arrays within each other: the bits of fieldScan.objects

// jsonPlace is what may come next in the document.
type jsonPlace uint8

const (
	atDocument jsonPlace = iota
	atFirstKey
	atKey
	atColon
	atFirstElement
	atValue
	atComma
	inString
	inEscape
	inHex
	inLiteral
	// The parts of a number, in their order.
	inSign
	inZero
	inInteger
	inPoint
	inFraction
	inE
	inExponentSign
	inExponent
)

// fieldScan looks for one field of a JSON object at the top of a document that
// comes piece by piece: it is handed the document from its first byte each
// time, longer than before, and looks at each byte once. Nothing behind the
// field is read, nor behind the object. Of fields with the same name the first
// counts. It keeps no data.
type fieldScan struct {
	name  string
	state fieldState

	at      int // bytes done with
	place   jsonPlace
	objects uint64 // what is open, innermost last: 1 an object, 0 an array
	depth   int

	key    bool   // the string under way is a key
	wanted bool   // the value under way is the field's
	start  int    // where the string, literal or number under way begins
	end    int    // and where it ends, without the quotes
	rest   string // what the literal under way still needs
	hex    uint8  // digits that the escape under way still needs
}

func newFieldScan(name string) fieldScan { return fieldScan{name: name} }

// scan goes on to the end of document, or until the field's state is known.
func (f *fieldScan) scan(document []byte) fieldState {
	for f.state == fieldUnknown && f.at < len(document) {
		f.step(document)
	}
	return f.state
}

// appendValue appends the field that was found in document to dst: a string
// unescaped, others as they were written. What is no UTF-8 in it stays as it
// came; half a surrogate pair becomes U+FFFD.
func (f *fieldScan) appendValue(dst, document []byte) []byte {
	if f.state != fieldFound {
		panic("BUG: the value of a field that was not found")
	}
	raw := document[f.start:f.end]
	if document[f.start-1] != '"' {
		return append(dst, raw...)
	}
	return appendUnescaped(dst, raw)
}

// step takes the next byte, or all of a string up to its end or next escape.
func (f *fieldScan) step(document []byte) {
	b := document[f.at]
	switch {
	case f.place < inString:
		if b != ' ' && b != '\t' && b != '\n' && b != '\r' {
			f.between(b)
		}
	case f.place == inString:
		f.text(document)
		return
	case f.place == inLiteral:
		f.literal(document)
	case f.place >= inSign:
		if !f.number(b) {
			f.ended(document, f.at)
			return
		}
	default:
		f.escape(b)
	}
	f.at++
}

// between takes a byte outside of strings, numbers and literals.
func (f *fieldScan) between(b byte) {
	switch f.place {
	case atDocument:
		f.state = fieldAbsent
		if b == '{' {
			f.state = fieldUnknown
			f.open(true)
		}
	case atFirstKey, atKey:
		switch {
		case b == '"':
			f.key, f.place, f.start = true, inString, f.at+1
		case b == '}' && f.place == atFirstKey:
			f.close()
		default:
			f.state = fieldMalformed
		}
	case atColon:
		f.place = atValue
		if b != ':' {
			f.state = fieldMalformed
		}
	case atFirstElement, atValue:
		if b == ']' && f.place == atFirstElement {
			f.close()
			return
		}
		f.value(b)
	case atComma:
		f.comma(b)
	}
}

// value takes the first byte of a value.
func (f *fieldScan) value(b byte) {
	f.start = f.at
	switch {
	case b == '"':
		f.key, f.place, f.start = false, inString, f.at+1
	case b == '{' || b == '[':
		if f.wanted {
			f.state = fieldAbsent // it has no value that could be used
			return
		}
		f.open(b == '{')
	case b == 't':
		f.place, f.rest = inLiteral, "rue"
	case b == 'f':
		f.place, f.rest = inLiteral, "alse"
	case b == 'n':
		f.place, f.rest = inLiteral, "ull"
	case b == '-':
		f.place = inSign
	case b == '0':
		f.place = inZero
	case b >= '1' && b <= '9':
		f.place = inInteger
	default:
		f.state = fieldMalformed
	}
}

func (f *fieldScan) open(object bool) {
	if f.depth == maxNesting {
		f.state = fieldMalformed
		return
	}
	f.depth++
	f.objects <<= 1
	f.place = atFirstElement
	if object {
		f.objects |= 1
		f.place = atFirstKey
	}
}

func (f *fieldScan) close() {
	f.depth--
	f.objects >>= 1
	f.place = atComma
	if f.depth == 0 {
		f.state = fieldAbsent
	}
}

// comma takes what follows a value: a comma, or the end of what holds it.
func (f *fieldScan) comma(b byte) {
	object := f.objects&1 != 0
	switch {
	case b == ',' && object:
		f.place = atKey
	case b == ',':
		f.place = atValue
	case b == '}' && object, b == ']' && !object:
		f.close()
	default:
		f.state = fieldMalformed
	}
}

// ended takes the end of a string, number or literal.
func (f *fieldScan) ended(document []byte, end int) {
	f.end = end
	switch {
	case f.key:
		f.key, f.place = false, atColon
		f.wanted = f.depth == 1 && sameKey(document[f.start:end], f.name)
	case f.wanted && document[f.start] == 'n' && document[f.start-1] != '"':
		f.state = fieldAbsent // null
	case f.wanted:
		f.state = fieldFound
	default:
		f.place = atComma
	}
}

// text goes through a string to its end or its next escape.
func (f *fieldScan) text(document []byte) {
	for f.at < len(document) {
		b := document[f.at]
		f.at++
		switch {
		case b == '"':
			f.ended(document, f.at-1)
			return
		case b == '\\':
			f.place = inEscape
			return
		case b < ' ':
			f.state = fieldMalformed
			return
		}
	}
}

func (f *fieldScan) escape(b byte) {
	switch {
	case f.place == inHex:
		if _, ok := unhex(b); !ok {
			f.state = fieldMalformed
		}
		if f.hex--; f.hex == 0 {
			f.place = inString
		}
	case b == 'u':
		f.place, f.hex = inHex, 4
	case strings.IndexByte(`"\/bfnrt`, b) >= 0:
		f.place = inString
	default:
		f.state = fieldMalformed
	}
}

// literal takes a byte of true, false or null behind the first.
func (f *fieldScan) literal(document []byte) {
	if document[f.at] != f.rest[0] {
		f.state = fieldMalformed
		return
	}
	if f.rest = f.rest[1:]; f.rest == "" {
		f.ended(document, f.at+1)
	}
}

// number takes a byte of a number behind the first; false says that the number
// ended before it.
func (f *fieldScan) number(b byte) bool {
	digit, fraction, exponent := b >= '0' && b <= '9', b == '.', b == 'e' || b == 'E'
	next := atDocument // stands for: none
	switch f.place {
	case inSign:
		if digit {
			next = inInteger
		}
		if b == '0' {
			next = inZero
		}
	case inZero, inInteger, inFraction, inExponent:
		switch {
		case digit && f.place != inZero:
			next = f.place
		case fraction && f.place < inPoint:
			next = inPoint
		case exponent && f.place < inE:
			next = inE
		default:
			return false
		}
	case inPoint:
		if digit {
			next = inFraction
		}
	case inE, inExponentSign:
		if digit {
			next = inExponent
		} else if f.place == inE && (b == '+' || b == '-') {
			next = inExponentSign
		}
	}
	if f.place = next; next == atDocument {
		f.state = fieldMalformed
	}
	return true
}

// sameKey tells whether a key, as written, is name.
func sameKey(raw []byte, name string) bool {
	const longest = len(`\u0061`) // what one byte of a name may be written with
	if bytes.IndexByte(raw, '\\') < 0 || len(raw) > longest*len(name) {
		return string(raw) == name
	}
	var room [64]byte
	return string(appendUnescaped(room[:0], raw)) == name
}

// appendUnescaped appends what a string that scan has seen to its end means.
func appendUnescaped(dst, raw []byte) []byte {
	for {
		i := bytes.IndexByte(raw, '\\')
		if i < 0 {
			return append(dst, raw...)
		}
		dst = append(dst, raw[:i]...)
		b := raw[i+1]
		if b != 'u' {
			if j := strings.IndexByte("bfnrt", b); j >= 0 {
				b = "\b\f\n\r\t"[j]
			}
			dst, raw = append(dst, b), raw[i+2:]
			continue
		}
		r := unhex4(raw[i+2:])
		raw = raw[i+6:]
		if utf16.IsSurrogate(r) {
			var pair rune = utf8.RuneError
			if len(raw) >= 6 && raw[0] == '\\' && raw[1] == 'u' {
				pair = utf16.DecodeRune(r, unhex4(raw[2:]))
			}
			if r = pair; r != utf8.RuneError {
				raw = raw[6:]
			}
		}
		dst = utf8.AppendRune(dst, r)
	}
}

// unhex4 is the number that four hexadecimal digits stand for.
func unhex4(p []byte) (r rune) {
	for _, b := range p[:4] {
		d, _ := unhex(b)
		r = r<<4 | rune(d)
	}
	return r
}

func unhex(b byte) (byte, bool) {
	switch {
	case b >= '0' && b <= '9':
		return b - '0', true
	case b >= 'a' && b <= 'f':
		return b - 'a' + 10, true
	case b >= 'A' && b <= 'F':
		return b - 'A' + 10, true
	}
	return 0, false
}
