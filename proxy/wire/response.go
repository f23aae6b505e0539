package wire

import "bytes"

// Response is a parsed response head. It owns its bytes; they stay as they are
// until the next parse.
type Response struct {
	Status int
	Length int64 // bytes of body, Chunked, or UntilClose; 0 where there can be none
	Close  bool  // the backend ends its connection after this answer

	http10  bool
	tainted bool   // both framings were there: readable, but the connection is not to be trusted again
	reason  []byte // status code and reason phrase, as they came
	sheet
}

// Interim tells whether another head follows.
func (p *Response) Interim() bool { return p.Status < 200 && p.Status != 101 }

// Field is the value of the first field of that name (lower case).
func (p *Response) Field(name string) ([]byte, bool) { return find(p.fields, name) }

// parse reads one head, empty line included, as the answer to a HEAD or not.
func (p *Response) parse(head []byte, toHead bool) error {
	p.open()
	defer p.keep()
	p.raw = append(p.raw[:0], head...)
	first := bytes.IndexByte(p.raw, '\n') + 1
	var err error
	if p.fields, err = scanFields(p.raw[first:], p.fields); err != nil {
		return err
	}
	if err := p.statusLine(p.raw[:first]); err != nil {
		return err
	}
	if err := p.stock.jury.response(p.raw); err != nil {
		return err
	}
	p.Close = closes(p.fields, p.http10)
	return p.framing(toHead)
}

func (p *Response) framing(toHead bool) error {
	length, err := framing(p.fields)
	// A Transfer-Encoding beside a Content-Length overrides it (RFC 9112
	// section 6.3 rule 3), and the connection is used no more.
	p.tainted = err == ErrFraming && length == Chunked
	if p.tainted {
		err = nil
	}
	if err != nil {
		return err
	}
	switch {
	case toHead, p.Status < 200, p.Status == 204, p.Status == 304:
		length = 0
	case length == Chunked && p.http10:
		return ErrFraming
	}
	p.Length = length
	p.Close = p.Close || p.tainted || length == UntilClose
	return nil
}

// statusLine takes "HTTP/1.x SP 3DIGIT SP [reason] CRLF" apart; the blank
// before an empty reason may be missing.
func (p *Response) statusLine(line []byte) error {
	if len(line) < 14 || line[len(line)-2] != '\r' {
		return ErrMalformed
	}
	version, rest := line[:9], line[9:len(line)-2]
	switch string(version) {
	case "HTTP/1.1 ":
		p.http10 = false
	case "HTTP/1.0 ":
		p.http10 = true
	default:
		return ErrVersion
	}
	p.Status = 0
	for _, b := range rest[:3] {
		if b < '0' || b > '9' {
			return ErrMalformed
		}
		p.Status = p.Status*10 + int(b-'0')
	}
	if p.Status < 100 || p.Status > 999 || len(rest) > 3 && rest[3] != ' ' {
		return ErrMalformed
	}
	for _, b := range rest[3:] {
		if !isValueByte(b) {
			return ErrMalformed
		}
	}
	p.reason = rest
	return nil
}
