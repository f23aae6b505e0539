package main

import (
	"bufio"
	"crypto/sha1"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
)

// sockets is a WebSocket server (RFC 6455) that sends back what it gets. A few
// words have it do more: "ping me" brings a ping, and "ponged" when that is
// answered; "close CODE REASON" a close frame. A plain GET tells how many are
// open.
type sockets struct{ open atomic.Int64 }

// The opcodes of frames.
const (
	opText  = 1
	opClose = 8
	opPing  = 9
	opPong  = 10
)

const maxFrame = 8 << 20

// frame is one frame, its payload unmasked.
type frame struct {
	first   byte // FIN, reserved bits and opcode
	payload []byte
}

func (f frame) opcode() byte { return f.first & 0xf }

func (s *sockets) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		fmt.Fprint(w, s.open.Load())
		return
	}
	sum := sha1.Sum([]byte(r.Header.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	head := "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
		"Sec-WebSocket-Accept: " + base64.StdEncoding.EncodeToString(sum[:]) + "\r\n"
	if strings.Contains(r.Header.Get("Sec-WebSocket-Protocol"), "chat") {
		head += "Sec-WebSocket-Protocol: chat\r\n"
	}
	c, in, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	s.open.Add(1)
	defer s.open.Add(-1)
	defer func() { _ = c.Close() }() // after a close frame, or a client that is gone
	if _, err := io.WriteString(c, head+"\r\n"); err != nil {
		return
	}
	for said := false; ; { // whether a close frame was sent
		f, err := readFrame(in.Reader)
		if err != nil || said && f.opcode() == opClose {
			return
		}
		answer := reply(f)
		said = answer[0]&0xf == opClose
		if _, err := c.Write(answer); err != nil || said && f.opcode() == opClose {
			return
		}
	}
}

// reply is what a frame is answered with.
func reply(f frame) []byte {
	words := string(f.payload[:min(len(f.payload), 100)])
	var code uint16
	var reason string
	switch {
	case f.opcode() == opPing:
		return frame{0x80 | opPong, f.payload}.bytes()
	case f.opcode() == opPong:
		return frame{0x80 | opText, []byte("ponged " + words)}.bytes()
	case f.opcode() != opText:
	case words == "ping me":
		return frame{0x80 | opPing, []byte("are you there?")}.bytes()
	case strings.HasPrefix(words, "close "):
		if _, err := fmt.Sscanf(words, "close %d %s", &code, &reason); err == nil {
			return frame{0x80 | opClose, append(binary.BigEndian.AppendUint16(nil, code), reason...)}.bytes()
		}
	}
	return frame{f.first, f.payload}.bytes()
}

func readFrame(in *bufio.Reader) (f frame, err error) {
	var head [10]byte
	if _, err := io.ReadFull(in, head[:2]); err != nil {
		return f, err
	}
	n, more := uint64(head[1]&0x7f), 0
	switch n {
	case 126:
		more = 2
	case 127:
		more = 8
	}
	if more > 0 {
		if _, err := io.ReadFull(in, head[10-more:]); err != nil {
			return f, err
		}
		copy(head[2:10-more], make([]byte, 8))
		n = binary.BigEndian.Uint64(head[2:])
	}
	if n > maxFrame || head[1]&0x80 == 0 {
		return f, fmt.Errorf("a frame of %d bytes, masked: %v", n, head[1]&0x80 != 0)
	}
	var key [4]byte
	if _, err := io.ReadFull(in, key[:]); err != nil {
		return f, err
	}
	f = frame{head[0], make([]byte, n)}
	_, err = io.ReadFull(in, f.payload)
	for i := range f.payload {
		f.payload[i] ^= key[i%4]
	}
	return f, err
}

func (f frame) bytes() []byte {
	b := []byte{f.first}
	switch n := len(f.payload); {
	case n < 126:
		b = append(b, byte(n))
	case n < 1<<16:
		b = binary.BigEndian.AppendUint16(append(b, 126), uint16(n))
	default:
		b = binary.BigEndian.AppendUint64(append(b, 127), uint64(n))
	}
	return append(b, f.payload...)
}
