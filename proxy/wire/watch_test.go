package wire

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"
)

// leavings are the ways in which a client leaves.
func leavings() map[string]func(testing.TB, *net.TCPConn) {
	return map[string]func(testing.TB, *net.TCPConn){
		"close":      func(_ testing.TB, c *net.TCPConn) { c.Close() },
		"half close": func(_ testing.TB, c *net.TCPConn) { c.CloseWrite() },
		"reset":      reset,
	}
}

// A client that leaves while nobody reads is noticed at once. A busy machine
// may spoil a try, but not three.
func TestLeavingIsNoticed(t *testing.T) {
	for _, way := range ways() {
		for how, leave := range leavings() {
			t.Run(way+", "+how, func(t *testing.T) {
				var took time.Duration
				for range 3 {
					c, far, l := served(t, way)
					c.Watch(false)
					from := time.Now()
					leave(t, far)
					await(t, l.heard, "the client left")
					took = time.Since(from)
					c.Unwatch()
					if !c.Gone() {
						t.Fatal("heard, but not gone")
					}
					if took < 100*time.Millisecond {
						return
					}
				}
				t.Errorf("noticed after %v", took)
			})
		}
	}
}

// Also with unread bytes before the end, and where the client left before the
// watch began.
func TestLeavingBehindBytes(t *testing.T) {
	inEveryWay(t, func(t *testing.T, c *Conn, far *net.TCPConn, l *leaver) {
		send(t, far, "unread")
		far.Close()
		if c.ticket != 0 {
			await(t, l.heard, "at once")
		}
		c.Watch(false)
		await(t, l.heard, "by the watch")
		c.Unwatch()
		if got, err := read(&c.End, 6, bound{}); err != nil || got != "unread" {
			t.Errorf("%q, %v", got, err)
		}
	})
}

// While the client stays, nobody hears anything, and what it sends is kept.
func TestWatchKeepsWhatComes(t *testing.T) {
	inEveryWay(t, func(t *testing.T, c *Conn, far *net.TCPConn, l *leaver) {
		var q Request
		for _, target := range []string{"/1", "/2", "/3"} {
			send(t, far, head("GET "+target+" HTTP/1.1", "Host: h")+"GET")
			c.Watch(false)
			c.Watch(false) // twice is once
			c.Unwatch()
			c.Unwatch()
			if err := c.ReadRequest(&q, wide()); err != nil || string(q.Target) != target {
				t.Fatalf("%s, %v", q.Target, err)
			}
			if got, err := read(&c.End, 3, bound{}); err != nil || got != "GET" {
				t.Fatalf("behind it: %q, %v", got, err)
			}
		}
		if n := l.times.Load(); n != 0 || c.Gone() {
			t.Errorf("heard %d times that the client left", n)
		}
	})
}

// A watch that reads ahead stops at a full buffer, and nothing is lost.
func TestReadAheadIsBounded(t *testing.T) {
	for _, way := range []string{"plain", "wrapped"} {
		c, far, l := served(t, way)
		all := strings.Repeat("0123456789", smallBuffer/5)
		send(t, far, "ab")
		if _, err := read(&c.End, 1, bound{}); err != nil {
			t.Fatal(err)
		}
		send(t, far, all)
		c.Watch(false)
		await(t, c.ahead.done, "a full buffer ends the watch")
		c.Unwatch()
		if !c.Full() || l.times.Load() != 0 {
			t.Errorf("%s: %d bytes ahead, heard %d times", way, len(c.Buffered()), l.times.Load())
		}
		if got, err := read(&c.End, 1+len(all), bound{}); err != nil || got != "b"+all {
			t.Errorf("%s: %d of %d bytes, %v", way, len(got), 1+len(all), err)
		}
	}
}

// Where another goroutine reads the body, a connection without descriptor is
// left to it.
func TestWatchUnread(t *testing.T) {
	c, far, l := served(t, "wrapped")
	c.Watch(true)
	if c.ahead.done != nil {
		t.Fatal("two read at once")
	}
	send(t, far, "x")
	if got, err := read(&c.End, 1, bound{}); err != nil || got != "x" || l.times.Load() != 0 {
		t.Errorf("%q, %v", got, err)
	}
}

// An interrupt or the end of the watch is no leaving.
func TestWatchEndsQuietly(t *testing.T) {
	for _, way := range []string{"plain", "wrapped"} {
		for name, end := range map[string]func(*Conn){"unwatch": (*Conn).Unwatch, "interrupt": func(c *Conn) { c.Interrupt() }} {
			c, _, l := served(t, way)
			c.Watch(false)
			ahead := c.ahead.done
			end(c)
			await(t, ahead, "the end of the watch")
			if c.Unwatch(); l.times.Load() != 0 || c.Gone() {
				t.Errorf("%s, %s: a leaving was heard", way, name)
			}
		}
	}
}

func TestSlots(t *testing.T) {
	var s slots
	a, b, c := &Conn{}, &Conn{}, &Conn{}
	first, second := s.put(a), s.put(b)
	if first == 0 || second == 0 || first == second || s.take(first).who != watched(a) || s.take(second).who != watched(b) {
		t.Fatalf("tickets %x and %x", first, second)
	}
	s.drop(first)
	if s.take(first).who != nil {
		t.Error("a ticket outlives its connection")
	}
	third := s.put(c)
	if uint32(third) != uint32(first) || third == first {
		t.Errorf("ticket %x takes the place of %x", third, first)
	}
	if s.take(first).who != nil || s.take(third).who != watched(c) || s.take(second).who != watched(b) {
		t.Error("an old ticket hits the next connection")
	}
	for _, never := range []ticket{0, 99, 1<<32 | 99} {
		if s.take(never).who != nil {
			t.Errorf("ticket %x was never given", never)
		}
	}
}

// holding keeps what is written while it is held, so that it goes out in one.
type holding struct {
	net.Conn
	held bool
	kept []byte
}

func (h *holding) Write(p []byte) (int, error) {
	h.kept = append(h.kept, p...)
	if h.held {
		return len(p), nil
	}
	_, err := h.Conn.Write(h.kept)
	h.kept = nil
	return len(p), err
}

// secured is a client connection of TLS that has brought one request, and the
// client, which sent it.
func secured(t testing.TB, send func(*tls.Conn, *holding) error) (c *Conn, client *tls.Conn, l *leaver) {
	t.Helper()
	near, far := pair(t)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"h"}}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	server := tls.Server(near, &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{cert}, PrivateKey: key}}})
	under := &holding{Conn: far}
	client = tls.Client(under, &tls.Config{InsecureSkipVerify: true})
	l = newLeaver()
	c = NewConn(server, &Buffers{}, newWatcher(t), l)
	t.Cleanup(c.Close)
	sent := async(func() error { return errors.Join(client.Handshake(), send(client, under)) })
	var q Request
	if err := c.ReadRequest(&q, wide()); err != nil || string(q.Target) != "/tls" {
		t.Fatalf("%s, %v", q.Target, err)
	}
	if err := await(t, sent, "the write's end"); err != nil {
		t.Fatal(err)
	}
	return c, client, l
}

func sendTLS(text string) func(*tls.Conn, *holding) error {
	return func(c *tls.Conn, _ *holding) error { _, err := io.WriteString(c, text); return err }
}

// TLS reads what was decrypted, and is watched all the same: for a close of the
// connection, and for one that is only said.
func TestWatchTLS(t *testing.T) {
	for how, leave := range map[string]func(*tls.Conn) error{
		"close":        func(c *tls.Conn) error { return c.NetConn().Close() },
		"close_notify": (*tls.Conn).CloseWrite,
	} {
		for _, before := range []bool{false, true} {
			c, client, l := secured(t, sendTLS(head("GET /tls HTTP/1.1", "Host: h")))
			if !before {
				c.Watch(false)
			}
			if err := leave(client); err != nil {
				t.Fatal(err)
			}
			if before {
				c.Watch(false)
			}
			await(t, l.heard, how)
			c.Unwatch()
			if !c.Gone() {
				t.Errorf("%s: heard, but not gone", how)
			}
		}
	}
}

// The end may have come in one with the request: then TLS holds it already.
func TestWatchTLSFindsWhatWasRead(t *testing.T) {
	c, _, l := secured(t, func(client *tls.Conn, under *holding) error {
		under.held = true
		err := sendTLS(head("GET /tls HTTP/1.1", "Host: h"))(client, under)
		under.held = false
		return errors.Join(err, client.CloseWrite())
	})
	c.Watch(false)
	await(t, l.heard, "close_notify that came with the request")
	c.Unwatch()
}

// What a client of TLS sends while it is watched is kept, and it is watched on.
func TestWatchTLSKeepsWhatComes(t *testing.T) {
	c, client, l := secured(t, sendTLS(head("GET /tls HTTP/1.1", "Host: h")))
	var q Request
	for _, target := range []string{"/1", "/2", "/3"} {
		c.Watch(false)
		send(t, client, head("GET "+target+" HTTP/1.1", "Host: h")+"GET")
		c.Watch(false) // twice is once
		c.Unwatch()
		c.Unwatch()
		if err := c.ReadRequest(&q, wide()); err != nil || string(q.Target) != target {
			t.Fatalf("%s, %v", q.Target, err)
		}
		if got, err := read(&c.End, 3, bound{}); err != nil || got != "GET" {
			t.Fatalf("behind it: %q, %v", got, err)
		}
	}
	c.Watch(false)
	send(t, client, "more")
	if err := client.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	await(t, l.heard, "close_notify behind bytes")
	c.Unwatch()
	if got, err := read(&c.End, 4, bound{}); err != nil || got != "more" {
		t.Errorf("%q, %v", got, err)
	}
	if n := l.times.Load(); n != 1 {
		t.Errorf("heard %d times that the client left", n)
	}
}
