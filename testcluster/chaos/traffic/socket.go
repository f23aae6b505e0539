package traffic

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/starling-lb/starling/testcluster/chaos/history"
	"github.com/starling-lb/starling/testcluster/llm"
)

const (
	opBinary = 2
	opClose  = 8
	talkPace = 150 * time.Millisecond // between two messages, the mean
)

// socket is a WebSocket that sends messages and wants each back as it was.
func (t *Traffic) socket(ctx context.Context, url string, p plan, turn *history.Turn) error {
	host := strings.TrimPrefix(url, "http://")
	c, err := new(net.Dialer).DialContext(ctx, "tcp", host)
	if err != nil {
		turn.End = unreachable
		return err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	session := ""
	if p.session != "" {
		session = llm.SessionHeader + ": " + p.session + "\r\n"
	}
	fmt.Fprintf(c, "GET /v1/realtime HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n%s: %s\r\n%s\r\n",
		host, llm.RequestIDHeader, turn.ID, session)
	in := bufio.NewReader(c)
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		turn.End = endOf(ctx)
		return err
	}
	turn.First, turn.Status, turn.Backend = time.Now(), resp.StatusCode, resp.Header.Get(llm.BackendHeader)
	if resp.StatusCode != http.StatusSwitchingProtocols {
		turn.End, turn.Code = refused, resp.Header.Get(codeHeader)
		return nil
	}
	gone, err := t.talk(ctx, c, in, p, turn)
	switch {
	case gone:
		turn.End = left
	case err == nil:
		turn.End, turn.Whole, turn.Status = clean, true, http.StatusOK
	case errors.Is(err, errWrong):
		turn.End, turn.Status = clean, http.StatusOK
	default:
		turn.End = endOf(ctx)
	}
	return err
}

// endOf is how a connection that failed has ended.
func endOf(ctx context.Context) string {
	if ctx.Err() != nil {
		return left
	}
	return broken
}

// talk sends and hears, and says farewell, or leaves without a word.
func (t *Traffic) talk(ctx context.Context, c net.Conn, in *bufio.Reader, p plan, turn *history.Turn) (gone bool, err error) {
	dice := rand.New(rand.NewPCG(p.seed, 3))
	for i := range p.want {
		if i > 0 && i == p.leave {
			return true, nil
		}
		message := make([]byte, 1+dice.IntN(2000))
		for j := range message {
			message[j] = byte(dice.Uint32())
		}
		if err := exchange(c, in, opBinary, message); err != nil {
			return false, fmt.Errorf("message %d of %d: %w", i, p.want, err)
		}
		turn.Bytes += int64(len(message))
		select {
		case <-time.After(time.Duration(dice.Int64N(int64(2 * talkPace)))):
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
	if err := exchange(c, in, opClose, []byte{3, 232}); err != nil {
		return false, fmt.Errorf("farewell: %w", err)
	}
	return false, nil
}

// exchange sends one frame and wants the same back.
func exchange(c net.Conn, in *bufio.Reader, op byte, payload []byte) error {
	if _, err := c.Write(masked(op, payload)); err != nil {
		return err
	}
	gotOp, got, err := frame(in)
	switch {
	case err != nil:
		return err
	case gotOp == opClose && !bytes.Equal(got, payload): // it was not ours
		return fmt.Errorf("the other end says farewell: %x", got)
	case gotOp != op || !bytes.Equal(got, payload):
		return wrong("%d bytes of kind %d came back as %d of kind %d", len(payload), op, len(got), gotOp)
	}
	return nil
}

// masked is a client's frame.
func masked(op byte, payload []byte) []byte {
	out := []byte{0x80 | op, 0x80 | byte(len(payload))}
	if len(payload) > 125 {
		out = binary.BigEndian.AppendUint16([]byte{0x80 | op, 0x80 | 126}, uint16(len(payload)))
	}
	key := [4]byte{7, 11, 13, byte(len(payload))}
	out = append(out, key[:]...)
	for i, b := range payload {
		out = append(out, b^key[i%4])
	}
	return out
}

// frame reads one of a server.
func frame(in io.Reader) (op byte, payload []byte, err error) {
	var head [2]byte
	if _, err := io.ReadFull(in, head[:]); err != nil {
		return 0, nil, err
	}
	n := int(head[1])
	if n == 126 {
		var long [2]byte
		if _, err := io.ReadFull(in, long[:]); err != nil {
			return 0, nil, err
		}
		n = int(binary.BigEndian.Uint16(long[:]))
	}
	payload = make([]byte, n)
	_, err = io.ReadFull(in, payload)
	return head[0] & 0xf, payload, err
}
