package wire

import (
	"sync"
	"sync/atomic"
	"time"
)

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

	papers sync.Pool // of *paper
	jury   Jury
	dated  atomic.Pointer[dateLine]
}

// dateLine is a Date field for the answers of one second.
type dateLine struct {
	second int64 // since 1970
	text   string
}

// date is the Date field of now, with its line end.
func (b *Buffers) date(now time.Time) string {
	second := now.Unix()
	if d := b.dated.Load(); d != nil && d.second == second {
		return d.text
	}
	d := &dateLine{second: second, text: now.UTC().Format("Date: Mon, 02 Jan 2006 15:04:05 GMT\r\n")}
	b.dated.Store(d)
	return d.text
}

// paper is what the bytes and the index of a head are written on.
type paper struct {
	raw    []byte
	fields []field
}

// sheet is a head's paper, from the first parse on until it is released.
type sheet struct {
	raw    []byte
	fields []field
	stock  *Buffers // nil: a stock of its own
	paper  *paper
}

func (s *sheet) open() {
	if s.paper != nil {
		return
	}
	if s.stock == nil {
		s.stock = &Buffers{}
	}
	if p, ok := s.stock.papers.Get().(*paper); ok {
		s.paper = p
	} else {
		s.paper = &paper{}
	}
	s.raw, s.fields = s.paper.raw, s.paper.fields
}

func (s *sheet) keep() { s.paper.raw, s.paper.fields = s.raw, s.fields }

// Release gives the head's bytes back; none of them may be used any more.
func (s *sheet) Release() {
	if s.paper != nil {
		s.stock.papers.Put(s.paper)
		s.raw, s.fields, s.paper = nil, nil, nil
	}
}

// take returns a buffer of at least n bytes. Sizes above the largest shelf are
// made for the occasion. Shelves hold arrays: a slice would need a place for
// itself each time it is put back.
func (b *Buffers) take(n int) []byte {
	switch {
	case n <= smallBuffer:
		if p, ok := b.small.Get().(*[smallBuffer]byte); ok {
			return p[:]
		}
		return make([]byte, smallBuffer)
	case n <= bodyBuffer:
		if p, ok := b.body.Get().(*[bodyBuffer]byte); ok {
			return p[:]
		}
		return make([]byte, bodyBuffer)
	case n <= largeBuffer:
		if p, ok := b.large.Get().(*[largeBuffer]byte); ok {
			return p[:]
		}
		return make([]byte, largeBuffer)
	}
	return make([]byte, n)
}

// give puts a buffer back; its owner must not touch it again.
func (b *Buffers) give(buf []byte) {
	switch len(buf) {
	case smallBuffer:
		b.small.Put((*[smallBuffer]byte)(buf))
	case bodyBuffer:
		b.body.Put((*[bodyBuffer]byte)(buf))
	case largeBuffer:
		b.large.Put((*[largeBuffer]byte)(buf))
	}
}
