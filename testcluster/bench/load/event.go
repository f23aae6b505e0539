package load

import (
	"bytes"
	"errors"
	"strings"
	"time"
)

// An event is a line of fixed length, so that neither end has to search:
//
//	data: DUE(16 hex) STREAM(8 hex) NUMBER(8 hex) xxx...\n\n
const (
	eventPrefix = "data: "
	dueAt       = len(eventPrefix)
	streamAt    = dueAt + 17
	numberAt    = streamAt + 9
	fillAt      = numberAt + 9
	minEvent    = fillAt + 2
	maxEvent    = 32 << 10
)

var (
	errEvent = errors.New("event is garbled")
	errOrder = errors.New("event lost, repeated or of another stream")
	errEnded = errors.New("stream ended early")
)

// newEvent is an event of size bytes whose fields are to be filled in.
func newEvent(size int) []byte {
	zero := strings.Repeat("0", 16) + " " + strings.Repeat("0", 8) + " " + strings.Repeat("0", 8) + " "
	return []byte(eventPrefix + zero + strings.Repeat("x", size-minEvent) + "\n\n")
}

func fillEvent(e []byte, due int64, stream, number uint32) {
	putHex(e[dueAt:dueAt+16], uint64(due))
	putHex(e[streamAt:streamAt+8], uint64(stream))
	putHex(e[numberAt:numberAt+8], uint64(number))
}

func putHex(dst []byte, v uint64) {
	for i := len(dst) - 1; i >= 0; i-- {
		dst[i] = "0123456789abcdef"[v&15]
		v >>= 4
	}
}

func readHex(p []byte) (v uint64, ok bool) {
	for _, ch := range p {
		d, isHex := hexDigit(ch)
		if !isHex {
			return 0, false
		}
		v = v<<4 | uint64(d)
	}
	return v, true
}

// events is the body of one event stream.
type events struct {
	stream  uint32
	next    uint32 // number of the event that must come next
	lastDue int64
	part    []byte // of an event that came in pieces
	log     *eventLog
}

// eventLog is what the streams of one run share.
type eventLog struct {
	form      []byte // every event has this length and these bytes outside its fields
	recording bool
	count     int64
	delay     Histogram // from when an event was due at the backend until it was read
}

func (s *events) take(p []byte, at int64) error {
	size := len(s.log.form)
	for len(p) > 0 {
		if len(s.part) == 0 && len(p) >= size { // the usual case
			if err := s.event(p[:size], at); err != nil {
				return err
			}
			p = p[size:]
			continue
		}
		n := min(size-len(s.part), len(p))
		s.part, p = append(s.part, p[:n]...), p[n:]
		if len(s.part) < size {
			break
		}
		if err := s.event(s.part, at); err != nil {
			return err
		}
		s.part = nil // rare, and a held buffer per stream would add up
	}
	return nil
}

func (s *events) event(e []byte, at int64) error {
	due, ok := readHex(e[dueAt : dueAt+16])
	stream, ok2 := readHex(e[streamAt : streamAt+8])
	number, ok3 := readHex(e[numberAt : numberAt+8])
	same := bytes.HasPrefix(e, []byte(eventPrefix)) && bytes.Equal(e[fillAt:], s.log.form[fillAt:])
	if !ok || !ok2 || !ok3 || !same {
		return errEvent
	}
	if uint32(stream) != s.stream || uint32(number) != s.next {
		return errOrder
	}
	s.next++
	s.lastDue = int64(due)
	if s.log.recording {
		s.log.record(at - s.lastDue)
	}
	return nil
}

func (s *events) end() error { return errEnded }

func (l *eventLog) record(ns int64) {
	l.count++
	l.delay.Add(time.Duration(ns))
}
