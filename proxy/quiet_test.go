package proxy

import (
	"testing"
	"unsafe"

	"github.com/starling-lb/starling/proxy/wire"
)

// What a quiet stream holds besides two sockets fits the sizes that Go's memory
// comes in: a field more can cost each of them 64 or 128 bytes. Where one is
// needed only while a goroutine serves, it belongs on the desk.
func TestQuietStreamIsSmall(t *testing.T) {
	for _, c := range []struct {
		name     string
		is, most uintptr
	}{
		{"client", unsafe.Sizeof(client{}), 768},
		{"wire.Conn", unsafe.Sizeof(wire.Conn{}), 384},
		{"wire.Link", unsafe.Sizeof(wire.Link{}), 288},
	} {
		if c.is > c.most {
			t.Errorf("%s has %d bytes, and should fit %d", c.name, c.is, c.most)
		}
	}
}
