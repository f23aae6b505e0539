package wire

import "bytes"

// sseLine is what is known of the line under way from its first bytes.
type sseLine uint8

const (
	sseFirst sseLine = iota // the stream's very first: a byte order mark may stand before it
	sseBOM1
	sseBOM2
	sseEmpty
	sseD
	sseDA
	sseDAT
	sseDATA // "data" so far; the line is a data line if it ends here
	sseData
	sseComment
	sseOther
)

// Events counts the events of a text/event-stream whose bytes come in any
// pieces, transfer coding removed (WHATWG HTML section 9.2). The zero value
// stands before the first byte. It counts what a browser would dispatch: an
// event ends at an empty line and counts if it had a data line, an empty one
// too. What has no empty line behind it when the stream ends is no event.
type Events struct {
	line     sseLine
	cr       bool // the last byte was a CR: an LF behind it ends no other line
	data     bool // the event under way has a data line
	events   int64
	comments int64
}

// Count is how many events were dispatched so far.
func (e *Events) Count() int64 { return e.events }

// Comments is how many comment lines came so far; servers send them to keep a
// silent stream open.
func (e *Events) Comments() int64 { return e.comments }

// Scan goes over p and returns how many events ended in it.
func (e *Events) Scan(p []byte) (n int) {
	before := e.events
	// Each byte is looked at once for either line end, however they are mixed.
	lf, cr := lineEnd(p, 0, '\n'), lineEnd(p, 0, '\r')
	for at := 0; at < len(p); {
		end := min(lf, cr)
		if end > at {
			e.cr = false
			e.begin(p[at:end])
		}
		if end == len(p) {
			break
		}
		if at = end + 1; end == lf {
			if !e.cr {
				e.endLine()
			}
			e.cr = false
			lf = lineEnd(p, at, '\n')
		} else {
			e.endLine()
			e.cr = true
			cr = lineEnd(p, at, '\r')
		}
	}
	return int(e.events - before)
}

// lineEnd is where b stands in p from at on; len(p) where it does not.
func lineEnd(p []byte, at int, b byte) int {
	if i := bytes.IndexByte(p[at:], b); i >= 0 {
		return at + i
	}
	return len(p)
}

// begin takes bytes of a line until its kind is known.
func (e *Events) begin(p []byte) {
	for _, b := range p {
		if e.line >= sseData {
			return
		}
		e.line = e.line.next(b)
	}
}

func (l sseLine) next(b byte) sseLine {
	switch {
	case l == sseFirst && b == 0xEF, l == sseBOM1 && b == 0xBB:
		return l + 1
	case l == sseBOM2 && b == 0xBF:
		return sseEmpty
	case (l == sseFirst || l == sseEmpty) && b == ':':
		return sseComment
	case (l == sseFirst || l == sseEmpty) && b == 'd':
		return sseD
	case l >= sseD && l < sseDATA && b == "ata"[l-sseD]:
		return l + 1
	case l == sseDATA && b == ':':
		return sseData
	}
	return sseOther
}

func (e *Events) endLine() {
	switch e.line {
	case sseFirst, sseEmpty:
		if e.data {
			e.events++
		}
		e.data = false
	case sseDATA, sseData:
		e.data = true
	case sseComment:
		e.comments++
	}
	e.line = sseEmpty
}
