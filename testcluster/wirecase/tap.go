package wirecase

import (
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
)

// maxRaw bounds what is kept of the raw bytes of one direction.
const maxRaw = 4 << 20

// Ways a connection ended, as the side that reads sees it; "" while it is open.
const (
	Fin   = "fin"
	Reset = "rst"
)

// tap keeps what is read through it.
type tap struct {
	conn net.Conn

	mu    sync.Mutex
	raw   []byte
	total int64
	ended string
}

func (t *tap) Read(p []byte) (int, error) {
	n, err := t.conn.Read(p)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.total += int64(n)
	t.raw = append(t.raw, p[:min(n, maxRaw-len(t.raw))]...)
	switch {
	case errors.Is(err, io.EOF):
		t.ended = Fin
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		t.ended = Reset
	}
	return n, err
}

// restart forgets all but the given bytes.
func (t *tap) restart(keep []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.raw = append([]byte(nil), keep...)
}

func (t *tap) seen() (raw []byte, ended string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.raw[:len(t.raw):len(t.raw)], t.ended
}

// reset closes so that the peer gets a RST.
func reset(c net.Conn) error {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // a connection that is gone already needs none
	}
	return c.Close()
}
