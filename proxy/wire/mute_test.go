package wire

import (
	"crypto/tls"
	"errors"
	"io"
	"testing"
	"time"
)

// linkedTLS is a link by TLS of that version, and the backend's end of it, which
// can hold back what it writes so that it comes in one piece.
func linkedTLS(t testing.TB, version uint16) (l *Link, far *tls.Conn, under *holding) {
	t.Helper()
	near, there := pair(t)
	keys := ownTLS(t)
	keys.SessionTicketsDisabled = true // nothing comes that is no answer
	under = &holding{Conn: there}
	far = tls.Server(under, keys)
	met := async(far.Handshake)
	nc := tls.Client(near, &tls.Config{InsecureSkipVerify: true, MinVersion: version, MaxVersion: version})
	if err := errors.Join(nc.Handshake(), await(t, met, "the handshake")); err != nil {
		t.Fatal(err)
	}
	l = NewLink(nc, &Buffers{}, newWatcher(t))
	t.Cleanup(l.Close)
	return l, far, under
}

// answered has the backend answer a request with records that come in one piece,
// and reads the head of the answer, which has no body.
func answered(t testing.TB, l *Link, far *tls.Conn, under *holding, records ...string) {
	t.Helper()
	backend := async(func() error {
		if _, err := io.ReadFull(far, make([]byte, len("request"))); err != nil {
			return err
		}
		for i, r := range records {
			under.held = i < len(records)-1
			if _, err := io.WriteString(far, r); err != nil {
				return err
			}
		}
		return nil
	})
	if err := l.Send([]byte("request"), true, time.Minute); err != nil {
		t.Fatal(err)
	}
	var p Response
	if err := l.ReadResponse(&p, true, time.Minute, 64<<10); err != nil || p.Status != 200 {
		t.Fatalf("status %d, %v", p.Status, err)
	}
	if err := await(t, backend, "the backend's end"); err != nil {
		t.Fatal(err)
	}
	if n := len(l.Buffered()); n != 0 {
		t.Fatalf("%d bytes are buffered, and would be seen", n)
	}
}

// What TLS has read of a backend that sends more than its answer is the answer to
// no later request. A link behind which nothing is hidden is used on and on.
func TestIdleLooksIntoTLS(t *testing.T) {
	for name, version := range map[string]uint16{"1.2": tls.VersionTLS12, "1.3": tls.VersionTLS13} {
		t.Run(name, func(t *testing.T) {
			idle := NewIdle(10)
			defer idle.Close()
			l, far, under := linkedTLS(t, version)
			for range 3 {
				answered(t, l, far, under, anAnswer)
				if idle.Put(l, time.Now()); idle.Get() != l {
					t.Fatal("a link with nothing left over was closed")
				}
			}
			answered(t, l, far, under, anAnswer, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
			if idle.Put(l, time.Now()); idle.Get() != nil {
				t.Error("a link is used whose next answer is there already")
			}
			if l.Write([]byte("x"), time.Minute) == nil {
				t.Error("it was left open")
			}
		})
	}
}
