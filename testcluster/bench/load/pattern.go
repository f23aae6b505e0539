package load

import (
	"bytes"
	"errors"
	"math/rand/v2"
)

// MaxBody is the longest body that the backend sends or takes.
const MaxBody = 1 << 20

var errBody = errors.New("body differs from what was sent")

// Pattern is the first n bytes of the one body that everybody sends. It has
// no period, so that a piece that is lost, repeated or swapped shows.
func Pattern(n int) []byte {
	const letters = "abcdefghijklmnopqrstuvwxyz012345"
	draw := rand.NewPCG(1, 2)
	p := make([]byte, n)
	for i := range p {
		p[i] = letters[draw.Uint64()%uint64(len(letters))]
	}
	return p
}

// exact is a body that must be just the wanted bytes.
type exact struct {
	want []byte
	got  int
}

func (e *exact) take(p []byte, _ int64) error {
	if len(p) > len(e.want)-e.got || !bytes.Equal(p, e.want[e.got:e.got+len(p)]) {
		return errBody
	}
	e.got += len(p)
	return nil
}

func (e *exact) end() error {
	if e.got != len(e.want) {
		return errBody
	}
	e.got = 0
	return nil
}
