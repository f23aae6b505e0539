package llm

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// dialSocket opens a WebSocket in the name of session s.
func dialSocket(t *testing.T, s *Server) (net.Conn, *bufio.Reader) {
	t.Helper()
	c, err := net.Dial("tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(20 * time.Second))
	fmt.Fprintf(c, "GET /v1/realtime HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"+
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nX-Session-ID: s\r\nX-Starling-Epoch: 7\r\nX-Request-ID: r1\r\n\r\n")
	in := bufio.NewReader(c)
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != 101 || resp.Header.Get("Sec-WebSocket-Accept") != "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" || resp.Header.Get(BackendHeader) != "demo" {
		t.Fatalf("%s %v", resp.Status, resp.Header)
	}
	return c, in
}

// say writes a client's frame with a mask of zeros, which changes nothing.
func say(c net.Conn, op byte, payload string) {
	head := []byte{0x80 | op, frameMask | byte(len(payload))}
	if len(payload) > 125 {
		head = []byte{0x80 | op, frameMask | 126, byte(len(payload) >> 8), byte(len(payload))}
	}
	c.Write(append(append(head, 0, 0, 0, 0), payload...))
}

func heard(t *testing.T, in io.Reader, want []byte) {
	t.Helper()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(in, got); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("%.40q, %v; want %.40q", got, err, want)
	}
}

func TestSocketSaysBack(t *testing.T) {
	s := ForTest(t, Options{})
	c, in := dialSocket(t, s)
	long := strings.Repeat("starling ", 100)
	say(c, 1, "hello")
	heard(t, in, []byte("\x81\x05hello"))
	say(c, 2, long)
	heard(t, in, append([]byte{0x82, 126, 3, 132}, long...))
	say(c, opPing, "p")
	heard(t, in, []byte("\x8a\x01p"))
	say(c, opClose, "\x03\xe8")
	heard(t, in, []byte("\x88\x02\x03\xe8"))
	turns, _ := s.Turns(0) // it was on record before the close frame
	if len(turns) != 1 || turns[0].Outcome != Done || turns[0].Output != 2 || turns[0].Session != "s" || turns[0].Epoch != "7" || turns[0].RequestID != "r1" {
		t.Errorf("%+v", turns)
	}
}

func TestSocketBreaksAsTold(t *testing.T) {
	s := ForTest(t, Options{})
	if err := s.SetFaults(Faults{BreakAfter: 2}); err != nil {
		t.Fatal(err)
	}
	c, in := dialSocket(t, s)
	say(c, 1, "a")
	heard(t, in, []byte("\x81\x01a"))
	say(c, 1, "b")
	if _, err := io.Copy(io.Discard, in); err == nil {
		t.Error("it ends cleanly")
	}
	if turns, _ := s.Turns(0); len(turns) != 1 || turns[0].Outcome != Broken {
		t.Errorf("%+v", turns)
	}
}

// TestSocketsEnd: one whose client left, and one that its server ends.
func TestSocketsEnd(t *testing.T) {
	u := serve(t, Options{})
	c, _ := dialSocket(t, u.Server)
	c.Close()
	if got := u.turn(1); got.Outcome != Aborted {
		t.Errorf("%+v", got)
	}
	_, in := dialSocket(t, u.Server)
	now, cancel := context.WithCancel(t.Context())
	cancel()
	if err := u.Stop(now); err == nil {
		t.Error("no word of an answer that was cut")
	}
	if _, err := io.Copy(io.Discard, in); errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
	if got := u.turn(2); got.Outcome != Stopped {
		t.Errorf("%+v", got)
	}
}

func TestSocketsAreAskedFor(t *testing.T) {
	u := serve(t, Options{})
	if code, _, text := u.get("GET", u.URL()+"/v1/realtime", ""); code != 400 || !strings.Contains(text, "WebSocket") {
		t.Errorf("%d %s", code, text)
	}
	if _, _, err := readFrame(strings.NewReader("\x81\x01a")); !errors.Is(err, errFrame) {
		t.Errorf("%v for a frame without a mask", err)
	}
}

// TestAnswersShowTheMessage: an answer depends on each byte of the message.
func TestAnswersShowTheMessage(t *testing.T) {
	u := serve(t, Options{Speed: 100})
	text := strings.Repeat("upload ", 30_000)
	_, _, got := u.get("POST", u.URL()+"/v1/chat/completions", fmt.Sprintf(`{"messages":[{"role":"user","content":%q}],"max_tokens":5}`, text), PromptTokensHeader, "10")
	if want := Text(AnswerSeed(text), 5); !strings.Contains(got, want) {
		t.Errorf("%s, want %q in it", got, want)
	}
}
