package wire

import (
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// head joins lines into a head.
func head(lines ...string) string { return strings.Join(lines, "\r\n") + "\r\n\r\n" }

// pair is the two ends of a loopback connection; far gives up after a while,
// so that a broken test ends.
func pair(t testing.TB) (near, far *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dialed, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dialed.Close(); accepted.Close() })
	if err := accepted.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return dialed.(*net.TCPConn), accepted.(*net.TCPConn)
}

func send(t testing.TB, c net.Conn, s string) {
	t.Helper()
	if _, err := io.WriteString(c, s); err != nil {
		t.Fatal(err)
	}
}

func receive(t testing.TB, c net.Conn, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if n, err := io.ReadFull(c, got); err != nil || string(got) != want {
		t.Fatalf("received %q (%v), want %q", got[:n], err, want)
	}
}

// reset closes a connection so that its peer gets a reset.
func reset(t testing.TB, c *net.TCPConn) {
	t.Helper()
	if err := c.SetLinger(0); err != nil {
		t.Fatal(err)
	}
	c.Close()
}

// await returns what comes on ch in time.
func await[T any](t testing.TB, ch <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(10 * time.Second):
		t.Fatalf("nothing came in 10s: %s", what)
		panic("unreachable")
	}
}

// eventually waits for a condition that no channel tells of.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for by := time.Now().Add(10 * time.Second); !holds(); <-tick.C {
		if time.Now().After(by) {
			t.Fatalf("not in 10s: %s", what)
		}
	}
}

// async runs f, whose error comes on the channel.
func async(f func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	return done
}

// script is a connection that gives pieces to read, one a read, and then end;
// it keeps what is written. It has no descriptor.
type script struct {
	net.Conn
	pieces   []string
	end      error
	writes   []string
	broken   error // of every write
	closed   bool
	readBys  int // deadlines set
	writeBys int
}

func (s *script) Read(p []byte) (int, error) {
	if len(s.pieces) == 0 {
		return 0, s.end
	}
	n := copy(p, s.pieces[0])
	if s.pieces[0] = s.pieces[0][n:]; s.pieces[0] == "" {
		s.pieces = s.pieces[1:]
	}
	return n, nil
}

func (s *script) Write(p []byte) (int, error) {
	if s.broken != nil {
		return 0, s.broken
	}
	s.writes = append(s.writes, string(p))
	return len(p), nil
}

func (s *script) Close() error                     { s.closed = true; return nil }
func (s *script) SetDeadline(time.Time) error      { return nil }
func (s *script) SetReadDeadline(time.Time) error  { s.readBys++; return nil }
func (s *script) SetWriteDeadline(time.Time) error { s.writeBys++; return nil }

func scripted(pieces ...string) *script { return &script{pieces: pieces, end: io.EOF} }

// wrapped hides a socket's descriptor, as a fault injector does.
type wrapped struct{ net.Conn }

// leaver counts and tells of each Left.
type leaver struct {
	times atomic.Int64
	heard chan struct{}
}

func newLeaver() *leaver { return &leaver{heard: make(chan struct{}, 16)} }

func (l *leaver) Left() {
	l.times.Add(1)
	select {
	case l.heard <- struct{}{}:
	default:
	}
}

func newWatcher(t testing.TB) *Watcher {
	t.Helper()
	w, err := NewWatcher()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	return w
}

// wants fails unless err is want.
func wants(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("error %v, want %v", err, want)
	}
}

// seeds are what the clients and the backends of the wire cases send, a
// client's or a backend's bytes in one.
func seeds(t testing.TB) (clients, backends []string) {
	t.Helper()
	files, err := filepath.Glob("../../testcluster/wirecase/testdata/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no wire cases: %v", err)
	}
	type step struct {
		Send string `json:"send"`
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var cases []struct {
			Client  []step   `json:"client"`
			Backend [][]step `json:"backend"`
		}
		if err := json.Unmarshal(raw, &cases); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for _, c := range cases {
			for _, s := range append(c.Backend, c.Client) {
				var all strings.Builder
				for _, step := range s {
					all.WriteString(latin(strings.ReplaceAll(step.Send, "{{T}}", "wc0a1b2cx00001x")))
				}
				if all.Len() > 0 && strings.HasPrefix(all.String(), "HTTP/") {
					backends = append(backends, all.String())
				} else if all.Len() > 0 {
					clients = append(clients, all.String())
				}
			}
		}
	}
	return clients, backends
}

// latin makes each character the byte of its value.
func latin(s string) string {
	var b strings.Builder
	for _, r := range s {
		b.WriteByte(byte(r))
	}
	return b.String()
}
