package load

import (
	"bytes"
	"container/heap"
	"fmt"
	"net/url"
	"strconv"
	"time"
)

// stream is an event stream being sent.
type stream struct {
	conn   *conn // nil: its client left
	id     uint32
	number uint32
	due    int64 // of the next event
	period int64
	chunk  []byte // the event, framed
	event  []byte // inside chunk
}

// schedule is a heap: the stream that is due first is at 0.
type schedule []*stream

func (s schedule) Len() int           { return len(s) }
func (s schedule) Less(i, j int) bool { return s[i].due < s[j].due }
func (s schedule) Swap(i, j int)      { s[i], s[j] = s[j], s[i] }
func (s *schedule) Push(x any)        { *s = append(*s, x.(*stream)) }
func (s *schedule) Pop() any {
	last := len(*s) - 1
	x := (*s)[last]
	(*s)[last] = nil
	*s = (*s)[:last]
	return x
}

// streamQuery is how a generator asks for an event stream. The first event is
// due at once, or else after a share of the period that depends on the id, so
// that many streams do not send in step.
func streamQuery(id uint32, period time.Duration, size int, atOnce, watched bool) string {
	return fmt.Sprintf("/events?id=%d&period=%d&size=%d&at_once=%t&watched=%t", id, period, size, atOnce, watched)
}

func (b *Backend) startStream(c *conn, q url.Values) error {
	id, err := strconv.ParseUint(q.Get("id"), 10, 32)
	if err != nil {
		return fmt.Errorf("id: %w", err)
	}
	period, err := strconv.ParseInt(q.Get("period"), 10, 64)
	if err != nil || period <= 0 {
		return fmt.Errorf("period %q is no positive number of nanoseconds", q.Get("period"))
	}
	size, err := strconv.Atoi(q.Get("size"))
	if err != nil || size < minEvent || size > maxEvent {
		return fmt.Errorf("size %q is not within %d..%d", q.Get("size"), minEvent, maxEvent)
	}
	if q.Get("watched") == "true" {
		if err := b.watch(c, q); err != nil {
			return err
		}
	}
	s := &stream{conn: c, id: uint32(id), period: period, due: b.clock.now()}
	s.chunk, s.event = newChunk(size)
	if q.Get("at_once") != "true" {
		s.due += int64(uint64(uint32(id)*2654435769) * uint64(period) >> 32) // the golden ratio spreads evenly
	}
	c.stream = s
	b.send(c, []byte("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\nTransfer-Encoding: chunked\r\n\r\n"))
	heap.Push(&b.due, s)
	return nil
}

// newChunk is one event in chunked coding, and where in it the event is.
func newChunk(size int) (chunk, event []byte) {
	chunk = fmt.Appendf(nil, "%x\r\n", size)
	frame := len(chunk)
	chunk = append(append(chunk, newEvent(size)...), "\r\n"...)
	return chunk, chunk[frame : frame+size]
}

// sendDue sends every event that is due. An event carries the time when it was
// due, not when it was sent: if this loop is late, that is delay as well.
func (b *Backend) sendDue() {
	if len(b.due) == 0 {
		return
	}
	for now := b.clock.now(); len(b.due) > 0 && b.due[0].due <= now; {
		s := b.due[0]
		if s.conn == nil {
			heap.Pop(&b.due)
			continue
		}
		if now-s.due > int64(time.Second) {
			b.fail(errLate)
			return
		}
		b.sendEvent(s)
		s.due += s.period
		heap.Fix(&b.due, 0)
	}
}

func (b *Backend) sendEvent(s *stream) {
	fillEvent(s.event, s.due, s.id, s.number)
	s.number++
	c := s.conn
	blocked := len(c.out) > 0
	b.send(c, s.chunk)
	if !blocked && len(c.out) > 0 {
		c.out = bytes.Clone(c.out) // the chunk will be filled anew
	}
}
