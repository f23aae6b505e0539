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
	"testing/synctest"
	"time"
)

// ownTLS is a server's side of TLS with a certificate that nobody signed.
func ownTLS(t testing.TB) *tls.Config {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	form := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(24 * 365 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, form, form, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
}

// A peer that takes a little at a time is slow, not gone, although a write of
// TLS cannot be taken up again.
func TestTLSWriteSlowReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, there := net.Pipe()
		c := NewConn(tls.Server(near, ownTLS(t)), &Buffers{}, nil, &leaver{})
		far := tls.Client(there, &tls.Config{InsecureSkipVerify: true})
		done := async(func() error {
			if err := c.Handshake(time.Now().Add(time.Minute)); err != nil {
				return err
			}
			return c.Write([]byte(strings.Repeat("x", 10*tlsPiece)), 10*time.Second)
		})
		piece := make([]byte, tlsPiece)
		for range 10 { // 70 s in all
			if _, err := io.ReadFull(far, piece); err != nil {
				t.Fatal(err)
			}
			<-time.After(7 * time.Second)
		}
		if err := <-done; err != nil {
			t.Errorf("write: %v", err)
		}
		wants(t, c.Write(piece, 10*time.Second), ErrIdle)
		near.Close()
		there.Close()
	})
}

// A close takes leave, but does not wait for a peer that reads nothing.
func TestTLSCloseIsShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, there := net.Pipe()
		c := NewConn(tls.Server(near, ownTLS(t)), &Buffers{}, nil, &leaver{})
		far := tls.Client(there, &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12}) // which ends when both know it
		done := async(far.Handshake)
		if err := c.Handshake(time.Time{}); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		c.Close()
		if took := time.Since(began); took > time.Second {
			t.Errorf("it took %v", took)
		}
		there.Close()
	})
}

// Handshakes and PROXY headers end with their time, or when they are given up.
func TestGreetingEnds(t *testing.T) {
	for name, greet := range map[string]func(*Conn, time.Time) error{
		"handshake": (*Conn).Handshake,
		"header":    func(c *Conn, by time.Time) error { _, err := c.ReadProxy(by); return err },
	} {
		for _, secret := range []bool{true, false} {
			if name == "handshake" && !secret {
				continue
			}
			begin := func() (*Conn, *net.TCPConn) {
				near, far := pair(t)
				var nc net.Conn = near
				if secret {
					nc = tls.Server(NewFront(near, &Buffers{}), ownTLS(t))
				}
				w, err := NewWatcher()
				if err != nil {
					t.Fatal(err)
				}
				c := NewConn(nc, &Buffers{}, w, &leaver{heard: make(chan struct{}, 1)})
				t.Cleanup(func() { c.Close(); w.Stop() })
				return c, far
			}
			c, _ := begin()
			wants(t, greet(c, time.Now().Add(10*time.Millisecond)), ErrIdle)
			c, _ = begin()
			c.Interrupt()
			wants(t, greet(c, time.Now().Add(time.Hour)), ErrInterrupted)
			c, _ = begin()
			done := async(func() error { return greet(c, time.Time{}) })
			eventually(t, name+" waits", c.Idle)
			c.Interrupt()
			wants(t, await(t, done, name), ErrInterrupted)
			c, far := begin()
			far.Close()
			if err := greet(c, time.Now().Add(time.Hour)); !errors.Is(err, io.EOF) {
				t.Errorf("%s by TLS %v: %v at the end", name, secret, err)
			}
		}
	}
}

// What comes with a PROXY header is not lost, in whatever pieces it comes, and
// the loop that follows goes on with it.
func TestReadProxyKeepsTheRest(t *testing.T) {
	const header = "PROXY TCP4 192.0.2.1 198.51.100.2 56324 443\r\n"
	inEveryWay(t, func(t *testing.T, c *Conn, far *net.TCPConn, _ *leaver) {
		send(t, far, header[:10])
		read := async(func() error {
			h, err := c.ReadProxy(time.Now().Add(time.Minute))
			if err == nil && h.Source.String() != "192.0.2.1:56324" {
				err = errors.New("from " + h.Source.String())
			}
			return err
		})
		send(t, far, header[10:]+"GET /0 HTTP/1.1\r\nHost: h\r\n\r\nGET /1 HTTP/1.1\r\n")
		wants(t, await(t, read, "the header"), nil)
		l := &log{c: c, most: 2}
		done := async(func() error { c.Serve(&l.q, wide(), l); return l.err })
		send(t, far, "Host: h\r\n\r\n")
		wants(t, await(t, done, "the requests"), nil)
	})
}

func TestIdleDropRemote(t *testing.T) {
	idle := NewIdle(4)
	links := map[string]*Link{}
	for range 3 {
		near, _ := pair(t)
		l := NewLink(near, &Buffers{}, nil)
		links[near.RemoteAddr().String()] = l
		idle.Put(l, time.Now())
	}
	var gone string
	for gone = range links {
		break
	}
	idle.DropRemote(func(a net.Addr) bool { return a.String() == gone })
	if idle.Len() != 2 {
		t.Fatalf("%d links are left, want 2", idle.Len())
	}
	for l := idle.Get(); l != nil; l = idle.Get() {
		if l.nc.RemoteAddr().String() == gone {
			t.Error("the unwanted one is left")
		}
		l.Close()
	}
	if _, err := links[gone].nc.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the unwanted one is open: %v", err)
	}
}
