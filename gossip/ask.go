package gossip

import (
	"encoding/binary"
	"errors"
	"math"
	"sync"
	"time"
)

// A node that misses some of another's report asks that one for all of it. The
// question goes by packet, as reports do: where it is lost, so is the answer.

const (
	askAfter = 100 * time.Millisecond // by then chunks that overtook each other are all here
	askAgain = time.Second
	mostAsks = 3 // in a row that bring nothing: the next full report will

	asksAtOnce = 8 // within askAgain
)

var errAsk = errors.New("question is malformed")

// question asks a node, in its present start, for all of its report. Questions
// are counted, so that a recorded one is worthless.
type question struct {
	from    uint64 // mark
	boot    uint64
	forBoot uint64
	nth     uint64
}

func (q question) encode() []byte {
	b := appendMark([]byte{1}, q.from)
	b = binary.AppendUvarint(b, q.boot)
	b = binary.AppendUvarint(b, q.forBoot)
	return binary.AppendUvarint(b, q.nth)
}

func decodeQuestion(b []byte) (q question, err error) {
	r := &reader{b: b}
	version := r.byte()
	q.from = r.mark()
	q.boot, q.forBoot, q.nth = r.uvarint(math.MaxUint64), r.uvarint(math.MaxUint64), r.uvarint(math.MaxUint64)
	if r.bad || len(r.b) > 0 || version != 1 {
		return q, errAsk
	}
	return q, nil
}

// inquire asks those whose reports have gaps; speakLoop's alone.
func (c *Cluster) inquire(list []peer, now time.Time) {
	for _, p := range c.reports.gaps(list, now) {
		c.speaker.questions++
		q := question{markOf(c.opt.ID), c.boot, p.boot, c.speaker.questions}
		c.net.broadcast(kindAsk, q.encode(), []peer{p})
		c.count.asked.Add(1)
	}
}

// onAsk notes that another node wants to be told everything.
func (c *Cluster) onAsk(body []byte) error {
	q, err := decodeQuestion(body)
	if err != nil {
		return refuse(causeBroken, "%v", err)
	}
	p := c.members.peers.Load()
	i, ok := p.byMark[q.from]
	switch {
	case !ok:
		return refuse(causeStranger, "")
	case p.list[i].boot != q.boot || q.forBoot != c.boot || !c.asked.note(q):
		return refuse(causeOld, "")
	}
	return nil
}

// asked is who asked, by mark.
type asked struct {
	mu   sync.Mutex
	due  map[uint64]bool
	last map[uint64]question // of each that is alive
}

// note tells whether a question is new.
func (a *asked) note(q question) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.last == nil {
		a.last = map[uint64]question{}
	}
	if last, ok := a.last[q.from]; ok && last.boot == q.boot && last.nth >= q.nth {
		return false
	}
	if a.due == nil {
		a.due = map[uint64]bool{}
	}
	a.due[q.from], a.last[q.from] = true, q
	return true
}

// take is who asked since the last time; those that are gone are forgotten.
func (a *asked) take(p *peers) map[uint64]bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.last) > len(p.list) {
		for mark := range a.last {
			if _, here := p.byMark[mark]; !here {
				delete(a.last, mark)
			}
		}
	}
	due := a.due
	a.due = nil
	return due
}

// greet tells everything to those that have just come, and to those that ask.
func (c *Cluster) greet(entries []entry, p *peers, now time.Time) {
	s := &c.speaker
	var fresh []peer
	here := make(map[string]greeting, len(p.list))
	asked := c.asked.take(p)
	for _, one := range p.list {
		was := s.greeted[one.id]
		if was.boot != one.boot || asked[one.mark] && now.Sub(was.at) >= askAgain/2 {
			fresh = append(fresh, one)
			was = greeting{one.boot, now}
		}
		here[one.id] = was
	}
	s.greeted = here
	if len(fresh) > 0 {
		c.send(fulls(speaking(entries), c.laterChunk), fresh)
	}
}

// greeting is when a node, in its present start, was told everything.
type greeting struct {
	boot uint64
	at   time.Time
}
