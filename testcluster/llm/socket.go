package llm

import (
	"bufio"
	"context"
	"crypto/sha1"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// realtime is a WebSocket that says back each message as it came, until a close
// frame. It is one turn, and its output the messages that it answered; the batch
// does not know of it.

const (
	maxFrame  = 64 << 10
	opClose   = 8
	opPing    = 9
	opPong    = 10
	frameMask = 0x80 // set on what clients send
)

var errFrame = errors.New("no frame of a client")

func (s *Server) realtime(w http.ResponseWriter, r *http.Request) {
	key := r.Header.Get("Sec-WebSocket-Key")
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") || key == "" {
		invalid("", "This is a WebSocket: Upgrade and Sec-WebSocket-Key are missing.").write(w)
		return
	}
	s.answers.Add(1)
	turn := Turn{
		Backend: s.opts.ID, RequestID: r.Header.Get(RequestIDHeader), Session: sessionOf(r, &body{}), Epoch: r.Header.Get(EpochHeader),
		Model: s.opts.Model, Stream: true, Start: time.Now(),
	}
	c := connOf(r.Context())
	defer s.data.note(c, http.StateClosed) // net/http no longer tells
	nc, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return // it left
	}
	defer nc.Close()
	defer context.AfterFunc(s.ctx, func() { nc.Close() })()
	e := &echo{s: s, c: c, rw: rw, turn: turn}
	fmt.Fprintf(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: %s\r\n%s: %s\r\n\r\n", accept(key), BackendHeader, s.opts.ID)
	e.end(e.run())
}

// accept is RFC 6455's proof that the key was read.
func accept(key string) string {
	sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	return base64.StdEncoding.EncodeToString(sum[:])
}

// echo is one WebSocket.
type echo struct {
	s    *Server
	c    *conn
	rw   *bufio.ReadWriter
	turn Turn
}

func (e *echo) run() Outcome {
	for {
		if err := e.rw.Flush(); err != nil {
			return e.left()
		}
		op, payload, err := readFrame(e.rw)
		if err != nil || !e.s.wait(e.s.ctx, notHung) {
			return e.left()
		}
		switch op {
		case opClose:
			e.end(Done) // on record before the client can see it
			writeFrame(e.rw, opClose, payload)
			e.rw.Flush()
			return Done
		case opPing:
			writeFrame(e.rw, opPong, payload)
			continue
		}
		if e.turn.Output++; e.turn.Output == 1 {
			e.turn.FirstByte = time.Now()
		}
		writeFrame(e.rw, op, payload)
		if e.s.breaks(e.turn.Output) {
			e.rw.Flush()
			e.end(Broken)
			e.c.reset()
			return Broken
		}
	}
}

func (e *echo) left() Outcome {
	switch {
	case e.c.wasReset():
		return Broken
	case e.s.ctx.Err() != nil:
		return Stopped
	}
	return Aborted
}

// end puts the turn on record, once.
func (e *echo) end(outcome Outcome) {
	if e.turn.Outcome != "" {
		return
	}
	e.turn.End, e.turn.Outcome = time.Now(), outcome
	if outcome == Stopped {
		e.s.cutOff.Add(1)
	}
	e.s.turns.add(e.turn)
}

// readFrame reads a whole frame as clients send it.
func readFrame(r io.Reader) (op byte, payload []byte, err error) {
	var head [2]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	n := int(head[1] &^ frameMask)
	if n == 126 {
		var long [2]byte
		if _, err := io.ReadFull(r, long[:]); err != nil {
			return 0, nil, err
		}
		n = int(binary.BigEndian.Uint16(long[:]))
	}
	if head[1]&frameMask == 0 || head[1]&^frameMask == 127 || n > maxFrame {
		return 0, nil, errFrame
	}
	var key [4]byte
	if _, err := io.ReadFull(r, key[:]); err != nil {
		return 0, nil, err
	}
	payload = make([]byte, n)
	_, err = io.ReadFull(r, payload)
	for i := range payload {
		payload[i] ^= key[i%4]
	}
	return head[0] & 0xf, payload, err
}

// writeFrame writes a frame as servers send it; the flush tells of errors.
func writeFrame(w io.Writer, op byte, payload []byte) {
	head := []byte{0x80 | op, byte(len(payload))}
	if len(payload) > 125 {
		head = binary.BigEndian.AppendUint16([]byte{0x80 | op, 126}, uint16(len(payload)))
	}
	w.Write(head)
	w.Write(payload)
}
