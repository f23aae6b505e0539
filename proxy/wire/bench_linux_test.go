package wire

import (
	"io"
	"net"
	"testing"
)

// A connection for one request, from its accept to its close: taken by a Quick
// listener, and by package net's. Connecting is not counted.
func BenchmarkShortConnection(b *testing.B) {
	for name, listener := range map[string]func(net.Listener) net.Listener{"quick": Quick, "net": func(l net.Listener) net.Listener { return l }} {
		b.Run(name, func(b *testing.B) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				b.Fatal(err)
			}
			l = listener(l)
			defer l.Close()
			w, err := NewWatcher()
			if err != nil {
				b.Fatal(err)
			}
			defer w.Stop()
			var stock Buffers
			var q Request
			request := []byte(head("GET / HTTP/1.1", "Host: h"))
			nobody := newLeaver()
			b.ReportAllocs()
			for range b.N { // not Loop: the timer stops in between
				b.StopTimer()
				far, err := net.Dial("tcp", l.Addr().String())
				if err == nil {
					_, err = far.Write(request)
				}
				if err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
				near, err := l.Accept()
				if err != nil {
					b.Fatal(err)
				}
				c := NewConn(near, &stock, w, nobody)
				c.Serve(&q, HeadLimits{Bytes: 1 << 10}, lastAnswer{c})
				c.Close()
				b.StopTimer()
				far.Close()
				b.StartTimer()
			}
		})
	}
}

// A head and the 16 KiB behind it, in one system call and in two.
func BenchmarkHeadAndBody(b *testing.B) {
	header, body := make([]byte, 200), make([]byte, smallBuffer)
	for name, write := range map[string]func(e *End) error{
		"one": func(e *End) error { return e.WriteBoth(header, body, 0) },
		"two": func(e *End) error {
			if err := e.Write(header, 0); err != nil {
				return err
			}
			return e.Write(body, 0)
		},
	} {
		b.Run(name, func(b *testing.B) {
			near, far := pair(b)
			e := newEnd(near, &Buffers{})
			e.fd = edgeFD(near)
			sink := make([]byte, len(header)+len(body))
			b.ReportAllocs()
			for b.Loop() {
				if err := write(&e); err != nil {
					b.Fatal(err)
				}
				if _, err := io.ReadFull(far, sink); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
