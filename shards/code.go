package shards

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// codeVersion stands before all that is in the log and on the wire.
const codeVersion = 1

var errCode = errors.New("cannot be decoded")

// maxName is the longest backend or node id.
const maxName = 255

func appendText(b []byte, s string) []byte {
	s = s[:min(len(s), maxName)] // checked where it comes in
	return append(append(b, byte(len(s))), s...)
}

// reader takes bytes apart; short is set, and zeros come, where they end early.
type reader struct {
	rest  []byte
	short bool
}

func (r *reader) take(n int) []byte {
	if len(r.rest) < n {
		r.short, r.rest = true, nil
		return make([]byte, n)
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}

func (r *reader) byte() byte     { return r.take(1)[0] }
func (r *reader) uint16() uint16 { return binary.BigEndian.Uint16(r.take(2)) }
func (r *reader) uint32() uint32 { return binary.BigEndian.Uint32(r.take(4)) }
func (r *reader) key() Key       { return Key(r.take(16)) }
func (r *reader) text() string   { return string(r.take(int(r.byte()))) }

// done says whether what was read is whole, of this version, and all there is.
func (r *reader) done(what string, version byte) error {
	switch {
	case version != codeVersion:
		return fmt.Errorf("%s %w: version %d, this program knows %d; was it written by a newer one?", what, errCode, version, codeVersion)
	case r.short:
		return fmt.Errorf("%s %w: it is cut short", what, errCode)
	case len(r.rest) > 0:
		return fmt.Errorf("%s %w: %d bytes too many", what, errCode, len(r.rest))
	}
	return nil
}
