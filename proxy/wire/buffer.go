package wire

import "sync"

// Sizes of the buffers that a connection holds. A head or a body that needs
// more moves up a size; a quiet connection goes back to none.
const (
	smallBuffer = 16 << 10
	bodyBuffer  = 64 << 10
	largeBuffer = 128 << 10
)

// Buffers is a node's stock of read buffers, one shelf per size. The zero
// value is ready.
type Buffers struct {
	small, body, large sync.Pool
}

// take returns a buffer of at least n bytes. Sizes above the largest shelf are
// made for the occasion.
func (b *Buffers) take(n int) []byte {
	shelf, size := b.shelf(n)
	if shelf == nil {
		return make([]byte, n)
	}
	if p, ok := shelf.Get().(*[]byte); ok {
		return *p
	}
	return make([]byte, size)
}

// give puts a buffer back; its owner must not touch it again.
func (b *Buffers) give(buf []byte) {
	if shelf, size := b.shelf(len(buf)); shelf != nil && size == len(buf) {
		shelf.Put(&buf)
	}
}

func (b *Buffers) shelf(n int) (*sync.Pool, int) {
	switch {
	case n <= smallBuffer:
		return &b.small, smallBuffer
	case n <= bodyBuffer:
		return &b.body, bodyBuffer
	case n <= largeBuffer:
		return &b.large, largeBuffer
	}
	return nil, 0
}
