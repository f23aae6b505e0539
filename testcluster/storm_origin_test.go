package testcluster_test

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// noise is a stream of bytes that both its sender and its receiver can make:
// each byte that comes is compared with the one that was sent.
func noise(seed uint64) io.Reader {
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], seed)
	return rand.NewChaCha8(key)
}

// comparing is a writer that wants just the noise of a seed.
type comparing struct {
	want io.Reader
	n    int64
	buf  [4096]byte
}

func (c *comparing) Write(p []byte) (int, error) {
	for at := 0; at < len(p); {
		part := p[at:min(at+len(c.buf), len(p))]
		if _, err := io.ReadFull(c.want, c.buf[:len(part)]); err != nil {
			return at, err
		}
		if !bytes.Equal(part, c.buf[:len(part)]) {
			return at, fmt.Errorf("a wrong byte within %d behind byte %d", len(part), c.n)
		}
		at, c.n = at+len(part), c.n+int64(len(part))
	}
	return len(p), nil
}

// matches reads r to its end and wants n bytes of the noise of a seed.
func matches(r io.Reader, seed uint64, n int64) error {
	got := &comparing{want: noise(seed)}
	_, err := io.Copy(got, r)
	if err == nil && got.n != n {
		err = fmt.Errorf("the end came after %d bytes of %d", got.n, n)
	}
	return err
}

// order is what a client asks for, in the request's query.
type order struct {
	seed   uint64
	pieces int           // 0: until the client leaves
	size   int           // of a piece, in bytes
	pace   time.Duration // between two
	framed string        // chunked, length or close
	ends   string        // "", or how the backend breaks off: FIN or RST
}

func (o order) bytes() int64 { return int64(o.pieces) * int64(o.size) }

func (o order) query() string {
	return url.Values{
		"seed": {strconv.FormatUint(o.seed, 10)}, "pieces": {strconv.Itoa(o.pieces)}, "size": {strconv.Itoa(o.size)},
		"pace": {o.pace.String()}, "framed": {o.framed}, "ends": {o.ends},
	}.Encode()
}

func ordered(q url.Values) (o order) {
	o.seed, _ = strconv.ParseUint(q.Get("seed"), 10, 64) // our own client wrote it
	o.pieces, _ = strconv.Atoi(q.Get("pieces"))
	o.size, _ = strconv.Atoi(q.Get("size"))
	o.pace, _ = time.ParseDuration(q.Get("pace"))
	o.framed, o.ends = q.Get("framed"), q.Get("ends")
	return o
}

// serveStorm answers as the requests have it.
func serveStorm(c *net.TCPConn, in *bufio.Reader) {
	for {
		req, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		again := false
		switch o := ordered(req.URL.Query()); {
		case req.Header.Get("Upgrade") != "":
			echoFrames(c, in)
		case req.Method == http.MethodPost:
			again = takeUpload(c, req, o)
		default:
			again = pour(c, o)
		}
		if !again {
			return
		}
	}
}

// takeUpload compares what it gets with what is sent.
func takeUpload(c net.Conn, req *http.Request, o order) bool {
	status, body := "200 OK", "right"
	if err := matches(req.Body, o.seed, o.bytes()); err != nil {
		status, body = "422 Unprocessable Content", err.Error()
	}
	_, err := fmt.Fprintf(c, "HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s", status, len(body), body)
	return err == nil
}

// pour sends an answer, or as much of it as it is told.
func pour(c *net.TCPConn, o order) bool {
	head := "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
	switch o.framed {
	case "chunked":
		head += "Transfer-Encoding: chunked\r\n"
	case "length":
		head += fmt.Sprintf("Content-Length: %d\r\n", o.bytes())
	}
	if _, err := io.WriteString(c, head+"\r\n"); err != nil {
		return false
	}
	source, piece := noise(o.seed), make([]byte, o.size)
	for i := 0; o.pieces == 0 || i < o.pieces; i++ {
		if o.ends != "" && i == o.pieces/2 {
			if o.ends == "RST" {
				c.SetLinger(0)
			}
			return false
		}
		if o.pace > 0 {
			<-time.After(o.pace)
		}
		if _, err := io.ReadFull(source, piece); err != nil {
			return false
		}
		out := piece
		if o.framed == "chunked" {
			out = fmt.Appendf(nil, "%x\r\n%s\r\n", len(piece), piece)
		}
		if _, err := c.Write(out); err != nil {
			return false
		}
	}
	if o.framed == "chunked" {
		io.WriteString(c, "0\r\n\r\n")
	}
	return o.framed != "close"
}

const (
	binaryFrame = 2
	closeFrame  = 8
)

// echoFrames is a WebSocket that sends back what it gets, to its close frame.
func echoFrames(c net.Conn, in *bufio.Reader) {
	io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	for {
		opcode, payload, err := readFrame(in)
		if err != nil {
			return
		}
		if _, err := c.Write(frame(opcode, payload, false)); err != nil || opcode == closeFrame {
			return
		}
	}
}

// frame is a WebSocket frame; a masked one is a client's.
func frame(opcode byte, payload []byte, masked bool) []byte {
	out, mask := []byte{0x80 | opcode}, byte(0)
	if masked {
		mask = 0x80
	}
	if len(payload) < 126 {
		out = append(out, mask|byte(len(payload)))
	} else {
		out = binary.BigEndian.AppendUint16(append(out, mask|126), uint16(len(payload)))
	}
	if !masked {
		return append(out, payload...)
	}
	key := [4]byte{1, 2, 3, byte(len(payload))}
	out = append(out, key[:]...)
	for i, b := range payload {
		out = append(out, b^key[i%4])
	}
	return out
}

func readFrame(in *bufio.Reader) (opcode byte, payload []byte, err error) {
	var head [4]byte
	if _, err := io.ReadFull(in, head[:2]); err != nil {
		return 0, nil, err
	}
	n := int(head[1] & 0x7f)
	if n == 126 {
		if _, err := io.ReadFull(in, head[2:]); err != nil {
			return 0, nil, err
		}
		n = int(binary.BigEndian.Uint16(head[2:]))
	}
	var key [4]byte
	if head[1]&0x80 != 0 {
		if _, err := io.ReadFull(in, key[:]); err != nil {
			return 0, nil, err
		}
	}
	payload = make([]byte, n)
	_, err = io.ReadFull(in, payload)
	for i := range payload {
		payload[i] ^= key[i%4]
	}
	return head[0] & 0xf, payload, err
}
