package fault

import (
	"bytes"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestCutAfter(t *testing.T) {
	for _, tc := range []struct {
		name     string
		rule     Rule
		near     error // what the wrapped end is told
		far      error // what the peer is told; nil is an end of stream
		fromNear bool
	}{
		{"write, end", Rule{Write: Way{CutAfter: 5}}, syscall.EPIPE, nil, true},
		{"write, reset", Rule{Write: Way{CutAfter: 5, Reset: true}}, syscall.ECONNRESET, syscall.ECONNRESET, true},
		{"write, late end", Rule{Write: Way{CutAfter: 5, Delay: 20 * time.Millisecond}}, syscall.EPIPE, nil, true},
		{"read, end", Rule{Read: Way{CutAfter: 5}}, io.EOF, nil, false},
		{"read, reset", Rule{Read: Way{CutAfter: 5, Reset: true}}, syscall.ECONNRESET, syscall.ECONNRESET, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, near, far := wired(t, tc.rule)
			var got []byte
			var nearErr, farErr error
			if tc.fromNear {
				n, err := io.WriteString(near, "12345678")
				if nearErr = err; n != 5 {
					t.Errorf("wrote %d bytes, want 5", n)
				}
				got, farErr = io.ReadAll(far)
			} else {
				send(t, far, "12345678")
				buf := make([]byte, 8)
				n, err := io.ReadFull(near, buf[:5])
				if err != nil {
					t.Fatal(err)
				}
				got = buf[:n]
				_, nearErr = near.Read(buf)
				_, farErr = io.ReadAll(far)
			}
			if string(got) != "12345" {
				t.Errorf("%q came through, want the first 5 bytes", got)
			}
			if !errors.Is(nearErr, tc.near) {
				t.Errorf("wrapped end: %v, want %v", nearErr, tc.near)
			}
			if !errors.Is(farErr, tc.far) {
				t.Errorf("peer: %v, want %v", farErr, tc.far)
			}
		})
	}
}

func TestCutCountsFromTheRule(t *testing.T) {
	n, near, far := wired(t, Rule{})
	send(t, near, "1234567890")
	want(t, far, "1234567890")
	n.Set(label, Rule{Write: Way{CutAfter: 3}})
	if m, err := io.WriteString(near, "abcdef"); m != 3 || err == nil {
		t.Fatalf("wrote %d, %v; want 3 and an error", m, err)
	}
	want(t, far, "abc")
}

func TestRefuse(t *testing.T) {
	l := listen(t)
	n := New()
	defer n.Stop()
	dial := n.Dialer("", new(net.Dialer).DialContext)
	addr := l.Addr().String()
	n.Set(addr, Rule{Refuse: true})
	_, err := dial(t.Context(), "tcp", addr)
	var op *net.OpError
	if !errors.Is(err, syscall.ECONNREFUSED) || !errors.As(err, &op) || op.Addr.String() != addr {
		t.Fatalf("dial: %v, want connection refused by %s", err, addr)
	}
	n.Clear(addr)
	c, err := dial(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatalf("dial after Clear: %v", err)
	}
	c.Close()
}

func TestListener(t *testing.T) {
	n := New()
	defer n.Stop()
	plain := listen(t)
	l := n.Listener(label, plain)
	n.Set(label, Rule{Refuse: true})
	accepted := make(chan net.Conn, 1)
	go func() {
		if c, err := l.Accept(); err == nil {
			accepted <- c
		}
	}()
	_, err := dialAndRead(plain.Addr().String())
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("refused connection: %v, want a reset", err)
	}
	n.Clear(label)
	far, err := net.Dial("tcp", plain.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	far.SetDeadline(time.Now().Add(10 * time.Second))
	near := <-accepted
	defer near.Close()
	if n.Open(label) != 1 {
		t.Fatalf("%d open, want 1", n.Open(label))
	}
	n.Set(label, Rule{Write: Way{Drop: true}})
	send(t, near, "lost")
	n.Clear(label)
	send(t, near, "found")
	want(t, far, "found")
}

// dialAndRead is one step to a caller that expects a reset: a quick one may
// already show in connect.
func dialAndRead(addr string) (int, error) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(10 * time.Second))
	return c.Read(make([]byte, 1))
}

func TestResetAndOpen(t *testing.T) {
	n, near, far := wired(t, Rule{})
	got := reading(near, 1)
	if n.Open(label) != 1 || n.Open(Any) != 1 || n.Open("other") != 0 {
		t.Fatalf("open %d, %d, %d; want 1, 1, 0", n.Open(label), n.Open(Any), n.Open("other"))
	}
	if n.Reset("other") != 0 || n.Reset(label) != 1 {
		t.Fatal("Reset must find the one connection by its label only")
	}
	if _, err := far.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("peer: %v, want a reset", err)
	}
	if r := <-got; !errors.Is(r.err, syscall.ECONNRESET) {
		t.Fatalf("blocked read: %v, want a reset", r.err)
	}
	if _, err := near.Write([]byte("x")); !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("write: %v, want a reset", err)
	}
	if n.Open(label) != 1 {
		t.Fatal("a connection is open until its owner closes it")
	}
	if err := near.Close(); err != nil {
		t.Fatalf("first Close: %v", err)
	}
	if err := near.Close(); !errors.Is(err, net.ErrClosed) {
		t.Fatalf("second Close: %v, want ErrClosed", err)
	}
	if _, err := near.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
		t.Fatalf("read after Close: %v, want ErrClosed", err)
	}
	n.Clear(label)
	if n.Open(Any) != 0 || len(n.links) != 0 {
		t.Fatalf("%d open, %d labels remembered; want none", n.Open(Any), len(n.links))
	}
}

func TestAnyAndOwnRule(t *testing.T) {
	l := listen(t)
	n := New()
	defer n.Stop()
	n.Set("own", Rule{})
	n.Set(Any, Rule{Refuse: true})
	for name, refused := range map[string]bool{"own": false, "other": true} {
		c, err := n.Dialer(name, new(net.Dialer).DialContext)(t.Context(), "tcp", l.Addr().String())
		if errors.Is(err, syscall.ECONNREFUSED) != refused {
			t.Errorf("%s: %v, want refused %v", name, err, refused)
		}
		if c != nil {
			c.Close()
		}
	}
	n.Clear("own")
	if _, err := n.Dialer("own", nil)(t.Context(), "tcp", "x"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("without a rule of its own: %v, want Any's", err)
	}
	n.Clear(Any)
	if c, err := n.Dialer("other", new(net.Dialer).DialContext)(t.Context(), "tcp", l.Addr().String()); err != nil {
		t.Errorf("good network: %v", err)
	} else {
		c.Close()
	}
}

func TestWhatAConnectionShows(t *testing.T) {
	_, near, far := wired(t, Rule{Write: Way{Delay: time.Millisecond}})
	if _, ok := near.(syscall.Conn); ok {
		t.Error("a syscall.Conn would lead past the faults")
	}
	if _, ok := near.(io.ReaderFrom); ok {
		t.Error("an io.ReaderFrom would lead past the faults")
	}
	if _, ok := near.(interface{ NetConn() net.Conn }).NetConn().(*net.TCPConn); !ok {
		t.Error("NetConn is not the TCP connection")
	}
	send(t, near, "late, then the end of this half")
	if err := near.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if all, err := io.ReadAll(far); err != nil || !strings.HasPrefix(string(all), "late") {
		t.Fatalf("peer read %q, %v", all, err)
	}
	send(t, far, "the other half lives")
	want(t, near, "the other half lives")
}

func TestGoodNetworkCarriesAll(t *testing.T) {
	n, near, far := wired(t, Rule{})
	sent := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	go func() {
		for i := range 8 { // rules come and go that change no byte
			near.Write(sent[i*len(sent)/8 : (i+1)*len(sent)/8])
			n.Set(label, Rule{Write: Way{Delay: time.Duration(i%3) * time.Millisecond, Rate: 1 << 30 * (i % 2)}})
		}
		near.Close()
	}()
	got, err := io.ReadAll(far)
	if err != nil || !bytes.Equal(got, sent) {
		t.Fatalf("%d of %d bytes, %v", len(got), len(sent), err)
	}
}
