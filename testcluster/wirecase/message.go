package wirecase

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// Bounds of what is read and kept of one message.
const (
	maxHead = 2 << 20
	maxBody = 8 << 20
)

var errHeadTooLong = errors.New("head is longer than 2 MiB")

// Field is a header or trailer line, without the blanks around its value.
type Field struct{ Name, Value string }

// Message is a request or a response as it came, with everything about it that
// is not strictly as the standard has it.
type Message struct {
	Method, Target string // of a request
	Status         int    // of a response
	Version        string
	Fields         []Field
	Trailers       []Field
	Raw            []byte // the head
	Body           []byte // decoded, the first 8 MiB
	HeadAt         time.Time
	BodyAt         time.Time // when the first byte of Body came
	Complete       bool      // it ended as its framing says
	Cut            bool      // the connection ended before that
	Interim        []Message // 1xx before a final response
	Defects        []string

	start string
}

// Lines are the values of the field's lines, in order.
func (m *Message) Lines(name string) []string { return lines(m.Fields, name) }

func lines(fields []Field, name string) []string {
	var values []string
	for _, f := range fields {
		if strings.EqualFold(f.Name, name) {
			values = append(values, f.Value)
		}
	}
	return values
}

func (m *Message) defect(format string, args ...any) {
	m.Defects = append(m.Defects, fmt.Sprintf(format, args...))
}

// readHead reads up to the empty line. Faults that leave the message readable
// are noted and not an error: a judge wants to see what comes after them.
func readHead(r *bufio.Reader) (*Message, error) {
	m := &Message{}
	for {
		line, err := m.readLine(r)
		if err != nil {
			return m, err
		}
		switch {
		case line == "" && m.start == "":
			m.defect("empty line before the message")
		case line == "":
			m.HeadAt = time.Now()
			return m, nil
		case m.start == "":
			m.start = line
		default:
			m.Fields = append(m.Fields, m.field(line))
		}
	}
}

// readLine takes any line end and notes what is not CRLF.
func (m *Message) readLine(r *bufio.Reader) (string, error) {
	begin := len(m.Raw)
	for {
		part, err := r.ReadSlice('\n')
		m.Raw = append(m.Raw, part...)
		if len(m.Raw) > maxHead {
			return "", errHeadTooLong
		}
		if err == nil {
			break
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			if errors.Is(err, io.EOF) && len(m.Raw) > 0 {
				err = io.ErrUnexpectedEOF
			}
			return "", err
		}
	}
	line, crlf := strings.CutSuffix(string(m.Raw[begin:]), "\r\n")
	if !crlf {
		line = strings.TrimSuffix(line, "\n")
		m.defect("line end without CR after %q", line)
	}
	if strings.ContainsAny(line, "\r\x00") {
		m.defect("bare CR or NUL in %q", line)
	}
	return line, nil
}

func (m *Message) field(line string) Field {
	if line[0] == ' ' || line[0] == '\t' {
		m.defect("line folding: %q", line)
	}
	name, value, colon := strings.Cut(line, ":")
	if !colon {
		m.defect("field line without a colon: %q", line)
	}
	if !isToken(name) {
		m.defect("field name %q is no token", name)
	}
	return Field{Name: name, Value: strings.Trim(value, " \t")}
}

func isToken(s string) bool {
	const marks = "!#$%&'*+-.^_`|~"
	for i := range len(s) {
		c := s[i]
		if !(c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || strings.IndexByte(marks, c) >= 0) {
			return false
		}
	}
	return s != ""
}

// asRequest reads the request line and checks what the README calls clean.
func (m *Message) asRequest() framing {
	parts := strings.Split(m.start, " ")
	if len(parts) == 3 {
		m.Method, m.Target, m.Version = parts[0], parts[1], parts[2]
	}
	if len(parts) != 3 || !isToken(m.Method) || m.Target == "" || strings.ContainsAny(m.Target, "\t\x7f") {
		m.defect("request line %q", m.start)
	}
	if m.Version != "HTTP/1.0" && m.Version != "HTTP/1.1" {
		m.defect("version %q", m.Version)
	}
	if n := len(m.Lines("Host")); n > 1 || n == 0 && m.Version == "HTTP/1.1" {
		m.defect("%d Host lines", n)
	}
	return m.framing(noBody)
}

// asResponse reads the status line and finds the framing of a response to a
// request of that method.
func (m *Message) asResponse(method string) framing {
	version, rest, _ := strings.Cut(m.start, " ")
	code, _, blank := strings.Cut(rest, " ")
	if n, err := number(code, 10, 3); err == nil && len(code) == 3 && blank {
		m.Status = int(n)
	}
	m.Version = version
	if version != "HTTP/1.0" && version != "HTTP/1.1" || m.Status < 100 || m.Status > 599 {
		m.defect("status line %q", m.start)
	}
	f := m.framing(untilClose)
	empty := m.Status/100 == 1 || m.Status == 204
	if empty && (len(m.Lines("Content-Length")) > 0 || len(m.Lines("Transfer-Encoding")) > 0) {
		m.defect("Content-Length or Transfer-Encoding in a %d", m.Status)
	}
	if empty || m.Status == 304 || method == "HEAD" {
		return framing{kind: noBody}
	}
	return f
}
