package fault

import (
	"context"
	"io"
	"net"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const label = "b1"

// piped is a wrapped end and its peer on a pipe, which synctest can time.
func piped(t *testing.T, r Rule) (n *Net, near, far net.Conn) {
	t.Helper()
	n = New()
	dial := n.Dialer(label, func(context.Context, string, string) (net.Conn, error) {
		a, b := net.Pipe()
		far = b
		return a, nil
	})
	near, err := dial(t.Context(), "tcp", "pipe")
	if err != nil {
		t.Fatal(err)
	}
	n.Set(label, r) // only now: a dial has its own share of a rule
	t.Cleanup(func() { near.Close(); far.Close(); n.Stop() })
	return n, near, far
}

// wired is the same on TCP, where resets are real.
func wired(t *testing.T, r Rule) (n *Net, near, far net.Conn) {
	t.Helper()
	l := listen(t)
	n = New()
	near, err := n.Dialer(label, new(net.Dialer).DialContext)(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	n.Set(label, r)
	if far, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	far.SetDeadline(time.Now().Add(10 * time.Second))
	t.Cleanup(func() { near.Close(); far.Close(); n.Stop() })
	return n, near, far
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func send(t *testing.T, c net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatalf("write %q: %v", text, err)
	}
}

func want(t *testing.T, c net.Conn, text string) {
	t.Helper()
	b := make([]byte, len(text))
	if n, err := io.ReadFull(c, b); err != nil || string(b) != text {
		t.Fatalf("read %q, %v; want %q", b[:n], err, text)
	}
}

// result is what a call in a goroutine came to.
type result struct {
	n   int
	err error
}

func reading(c net.Conn, size int) <-chan result {
	done := make(chan result, 1)
	go func() {
		n, err := c.Read(make([]byte, size))
		done <- result{n, err}
	}()
	return done
}
