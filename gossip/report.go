package gossip

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/starling-lb/starling/proxy/backend"
)

// A report is what one node says of all its backends. It travels in chunks,
// each small enough for a packet and each good by itself: a chunk is either
// some entries that changed, or all that the node has to say of a range of
// backends, so that what it leaves out is nothing. Version is (boot, sequence):
// a later start, then a later chunk, is right. Chunks that go to all are numbered
// without gaps, so that who misses one knows it; what goes to one node alone has
// the number of the last of those, and how many looks later it was seen. Ages are
// relative to the chunk.

// markOf stands for an id on the wire: five bytes, enough to tell a thousand
// apart with one chance in two million of a mistake. Its first byte is the
// id's bucket.
func markOf(id string) uint64 {
	sum := sha256.Sum256([]byte(id))
	return uint64(sum[0])<<32 | uint64(sum[1])<<24 | uint64(sum[2])<<16 | uint64(sum[3])<<8 | uint64(sum[4])
}

const (
	markSize  = 5
	buckets   = 256
	maxChunk  = 1150 // bytes of a chunk: with its frame it fits the packets of every network
	maxInt    = 1 << 30
	heardFor  = 30 * time.Second // after which it does not matter when a byte came
	lookedFor = 2 * time.Minute  // likewise when somebody looked
	ageUnit   = 10 * time.Millisecond
)

var errChunk = errors.New("report is malformed")

func bucketOf(mark uint64) byte { return byte(mark >> 32) }

// chunk is one message of a report.
type chunk struct {
	origin   uint64 // mark of the node
	boot     uint64
	seq      uint64 // number, then looks since, in its last bits
	full     bool   // says all of the buckets from first to last
	first    byte
	last     byte
	entries  []entry
	received time.Time // here; ages count back from it
}

// entry is what a node says of one backend.
type entry struct {
	mark     uint64
	inFlight int
	running  int
	phantoms int  // in quarters
	speed    byte // coded; 0: none
	draining bool
	wanting  bool
	heard    int // units ago; -1: not lately
	looks    []look
}

// look is a backend.Look on the wire.
type look struct {
	ago, took int // units
	finding   byte
	late      bool // it failed for want of an answer in time
}

// What follows an entry's number of streams.
const (
	hasRunning = 1 << iota
	hasPhantoms
	hasSpeed
	isDraining
	hasHeard
	hasLooks
	isWanting
	allFlags = 1<<iota - 1
)

func findings() []backend.Finding {
	return []backend.Finding{backend.LookOK, backend.LookSlow, backend.LookFail, backend.LookNotReady}
}

// toEntry codes what this node says now.
func toEntry(r backend.Report, now time.Time) entry {
	e := entry{mark: markOf(r.ID), inFlight: clampInt(r.InFlight), running: clampInt(r.Running), draining: r.Draining, wanting: r.Wanting, heard: -1}
	e.phantoms = clampInt(int(math.Round(4 * min(max(r.Phantoms, 0), maxInt/4))))
	e.speed = codeSpeed(r.Speed)
	// A byte from the future was noted before the clock was set back: when it came
	// is not known any more, and it must not keep a backend in.
	if ago := now.Sub(time.Unix(0, r.Heard)); r.Heard > 0 && ago < heardFor && ago > -ageUnit {
		e.heard = int(max(0, ago) / ageUnit)
	}
	for _, l := range r.Looks[:min(len(r.Looks), backend.MaxLooks)] {
		i := slices.Index(findings(), l.Finding)
		if ago := now.Sub(l.At); i >= 0 && ago < lookedFor {
			e.looks = append(e.looks, look{int(max(0, ago) / ageUnit), int(min(max(0, l.Took), lookedFor) / ageUnit), byte(i), l.TimedOut})
		}
	}
	return e
}

func clampInt(n int) int { return min(max(n, 0), maxInt) }

// codeSpeed keeps a speed to 5 %, from a sixteenth to a hundred million.
func codeSpeed(s float64) byte {
	if !(s > 0) {
		return 0
	}
	return byte(min(max(math.Round(8*math.Log2(s))+32, 1), 255))
}

func speedOf(code byte) float64 {
	if code == 0 {
		return 0
	}
	return math.Exp2((float64(code) - 32) / 8)
}

// says tells whether an entry says more than that nothing is there.
func (e entry) says() bool {
	return e.inFlight != 0 || e.running != 0 || e.phantoms != 0 || e.speed != 0 || e.draining || e.wanting || e.heard >= 0 || len(e.looks) > 0
}

// size is the most that an entry takes on the wire.
func (e entry) size() int { return markSize + 1 + 5 + 5 + 5 + 1 + 5 + 1 + 8*len(e.looks) }

func appendMark(b []byte, m uint64) []byte {
	return append(b, byte(m>>32), byte(m>>24), byte(m>>16), byte(m>>8), byte(m))
}

const (
	chunkVersion = 1 << 4
	fullBit      = 1
	laterBit     = 2  // it goes to one node alone
	lookBits     = 16 // of a sequence
	maxLooks     = 1<<lookBits - 1
)

// number is that of the last chunk for all, up to this one.
func (c chunk) number() uint64 { return c.seq >> lookBits }

// forAll tells whether the number is the chunk's own.
func (c chunk) forAll() bool { return c.seq&maxLooks == 0 }

func (c chunk) encode() []byte {
	first := byte(chunkVersion)
	if c.full {
		first |= fullBit
	}
	if !c.forAll() {
		first |= laterBit
	}
	b := appendMark(append(make([]byte, 0, maxChunk), first), c.origin)
	b = binary.AppendUvarint(b, c.boot)
	b = binary.AppendUvarint(b, c.number())
	if !c.forAll() {
		b = binary.AppendUvarint(b, c.seq&maxLooks)
	}
	if c.full {
		b = append(b, c.first, c.last)
	}
	for _, e := range c.entries {
		b = e.append(b)
	}
	return b
}

func (e entry) append(b []byte) []byte {
	flags := byte(0)
	set := func(flag byte, on bool) {
		if on {
			flags |= flag
		}
	}
	set(hasRunning, e.running != e.inFlight)
	set(hasPhantoms, e.phantoms != 0)
	set(hasSpeed, e.speed != 0)
	set(isDraining, e.draining)
	set(hasHeard, e.heard >= 0)
	set(hasLooks, len(e.looks) > 0)
	set(isWanting, e.wanting)
	b = append(appendMark(b, e.mark), flags)
	b = binary.AppendUvarint(b, uint64(e.inFlight))
	if flags&hasRunning != 0 {
		b = binary.AppendUvarint(b, uint64(e.running))
	}
	if flags&hasPhantoms != 0 {
		b = binary.AppendUvarint(b, uint64(e.phantoms))
	}
	if flags&hasSpeed != 0 {
		b = append(b, e.speed)
	}
	if flags&hasHeard != 0 {
		b = binary.AppendUvarint(b, uint64(e.heard))
	}
	if flags&hasLooks != 0 {
		b = append(b, byte(len(e.looks)))
		for _, l := range e.looks {
			b = binary.AppendUvarint(b, uint64(l.ago))
			how := uint64(l.finding)
			if l.late {
				how |= 4
			}
			b = binary.AppendUvarint(b, uint64(l.took)<<3|how)
		}
	}
	return b
}

// reader takes numbers off bytes; the first failure stays.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) byte() byte {
	if len(r.b) == 0 {
		r.bad = true
		return 0
	}
	v := r.b[0]
	r.b = r.b[1:]
	return v
}

func (r *reader) uvarint(most uint64) uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 || v > most {
		r.bad = true
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) int() int { return int(r.uvarint(maxInt)) }

func (r *reader) mark() (m uint64) {
	for range markSize {
		m = m<<8 | uint64(r.byte())
	}
	return m
}

func decodeChunk(b []byte) (c chunk, err error) {
	r := &reader{b: b}
	first := r.byte()
	if first&^(fullBit|laterBit) != chunkVersion || len(b) > maxPacket {
		return c, errChunk
	}
	c.full, c.origin = first&fullBit != 0, r.mark()
	c.boot, c.seq = r.uvarint(math.MaxUint64), r.uvarint(math.MaxUint64>>lookBits)<<lookBits
	if first&laterBit != 0 {
		c.seq |= r.uvarint(maxLooks)
		r.bad = r.bad || c.forAll()
	}
	if c.full {
		c.first, c.last = r.byte(), r.byte()
		r.bad = r.bad || c.first > c.last
	}
	for len(r.b) > 0 && !r.bad {
		e := r.entry()
		r.bad = r.bad || c.full && (bucketOf(e.mark) < c.first || bucketOf(e.mark) > c.last)
		c.entries = append(c.entries, e)
	}
	if r.bad {
		return chunk{}, errChunk
	}
	return c, nil
}

func (r *reader) entry() entry {
	e := entry{mark: r.mark(), heard: -1}
	flags := r.byte()
	if flags > allFlags {
		r.bad = true
	}
	e.inFlight = r.int()
	e.running = e.inFlight
	if flags&hasRunning != 0 {
		e.running = r.int()
	}
	if flags&hasPhantoms != 0 {
		e.phantoms = r.int()
	}
	if flags&hasSpeed != 0 {
		e.speed = r.byte()
	}
	e.draining, e.wanting = flags&isDraining != 0, flags&isWanting != 0
	if flags&hasHeard != 0 {
		e.heard = r.int()
	}
	if flags&hasLooks != 0 {
		n := r.byte()
		r.bad = r.bad || n > backend.MaxLooks
		for i := byte(0); i < n && !r.bad; i++ {
			ago, took := r.int(), r.int()
			e.looks = append(e.looks, look{ago, took >> 3, byte(took & 3), took&4 != 0})
		}
	}
	return e
}

// deltas cuts changed entries into chunks.
func deltas(entries []entry, make func(full bool) chunk) []chunk {
	var out []chunk
	size := maxChunk
	for _, e := range entries {
		if size+e.size() > maxChunk {
			out = append(out, make(false))
			size = headSize
		}
		c := &out[len(out)-1]
		c.entries = append(c.entries, e)
		size += e.size()
	}
	return out
}

const headSize = 1 + markSize + 10 + 10 + 3 + 2

// fulls cuts all entries into chunks that together cover every bucket. A bucket
// that no chunk holds is sent as changes, which say what is but not what is not.
func fulls(entries []entry, make func(full bool) chunk) []chunk {
	slices.SortFunc(entries, func(a, b entry) int {
		if a.mark < b.mark {
			return -1
		}
		return 1
	})
	var out, odd []chunk
	now, size := make(true), headSize
	for b, rest := 0, entries; b < buckets; b++ {
		n, bytes := 0, 0
		for n < len(rest) && int(bucketOf(rest[n].mark)) == b {
			bytes += rest[n].size()
			n++
		}
		if headSize+bytes > maxChunk {
			odd = append(odd, deltas(rest[:n], make)...)
			if b > int(now.first) {
				out = append(out, now.until(b-1))
			}
			now, size = make(true), headSize
			now.first = byte(min(b+1, buckets-1))
			rest = rest[n:]
			if b == buckets-1 {
				return append(out, odd...)
			}
			continue
		}
		if size+bytes > maxChunk {
			out = append(out, now.until(b-1))
			now, size = make(true), headSize
			now.first = byte(b)
		}
		now.entries, size, rest = append(now.entries, rest[:n]...), size+bytes, rest[n:]
	}
	return append(append(out, now.until(buckets-1)), odd...)
}

func (c chunk) until(b int) chunk {
	c.last = byte(b)
	return c
}
