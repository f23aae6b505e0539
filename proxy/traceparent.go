package proxy

import (
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
)

// Flags of a traceparent.
const (
	traceSampled = 0x01
	traceRandom  = 0x02 // the trace's id is random (Trace Context level 2)
)

// traceparentSize is the length of a traceparent of version 00, in bytes.
const traceparentSize = 55

// traceContext is a place in a trace: which one, and whose span is the parent
// of what comes next. The zero value is none.
type traceContext struct {
	trace [16]byte
	span  [8]byte
	flags byte
}

// parseTraceparent reads the value of a traceparent field (W3C Trace Context,
// sections 3.2 and 4). Of versions to come it takes what version 00 has. Where
// ok is false, or the field stands twice, the trace begins anew, and a
// tracestate that came along must not be passed on; else it passes untouched.
func parseTraceparent(p []byte) (t traceContext, ok bool) {
	if len(p) < traceparentSize || p[2] != '-' || p[35] != '-' || p[52] != '-' {
		return t, false
	}
	var version, flags [1]byte
	if !unhexLower(version[:], p) || !unhexLower(t.trace[:], p[3:]) || !unhexLower(t.span[:], p[36:]) || !unhexLower(flags[:], p[53:]) {
		return traceContext{}, false
	}
	known := byte(traceSampled | traceRandom) // the others are to be set to zero
	if version[0] > 0 {
		known = traceSampled // all that is promised of a later version
	}
	t.flags = flags[0] & known
	longer := len(p) > traceparentSize
	switch {
	case t.trace == [16]byte{} || t.span == [8]byte{}, // the specification's marks for "invalid"
		version[0] == 0xff,
		version[0] == 0 && longer,
		longer && p[traceparentSize] != '-':
		return traceContext{}, false
	}
	return t, true
}

// newTrace begins a trace; a span of ours is its first.
func newTrace(sampled bool) (t traceContext) {
	for t.trace == [16]byte{} {
		binary.NativeEndian.PutUint64(t.trace[:], rand.Uint64())
		binary.NativeEndian.PutUint64(t.trace[8:], rand.Uint64())
	}
	if sampled {
		t.flags = traceSampled
	}
	return t.next()
}

// next is the same trace with a new span of ours as the parent of what follows.
func (t traceContext) next() traceContext {
	t.span = [8]byte{}
	for t.span == [8]byte{} {
		binary.NativeEndian.PutUint64(t.span[:], rand.Uint64())
	}
	return t
}

func (t traceContext) sampled() bool { return t.flags&traceSampled != 0 }

// appendTraceparent appends the field's value, always in version 00.
func appendTraceparent(dst []byte, t traceContext) []byte {
	dst = append(dst, "00-"...)
	dst = hex.AppendEncode(dst, t.trace[:])
	dst = append(dst, '-')
	dst = hex.AppendEncode(dst, t.span[:])
	dst = append(dst, '-')
	return hex.AppendEncode(dst, []byte{t.flags})
}

// unhexLower fills dst from as many hexadecimal digits as it needs; the
// specification knows small letters only.
func unhexLower(dst, p []byte) bool {
	for i, b := range p[:2*len(dst)] {
		d, ok := unhex(b)
		if !ok || b >= 'A' && b <= 'F' {
			return false
		}
		dst[i/2] = dst[i/2]<<4 | d
	}
	return true
}
