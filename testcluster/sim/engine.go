package sim

import (
	"math"
	"slices"
)

// Rates of an engine of speed 1 with one stream alone, per second.
const (
	prefillRate = 8000 // prompt tokens
	decodeRate  = 50   // answer tokens
)

// Engine says what one backend is like.
type Engine struct {
	Speed float64 // 1: prefillRate and decodeRate
	Knee  float64 // with c streams active each runs at Speed/(1+(c-1)/Knee); +Inf: at Speed
	Slots int     // streams active at most
	Queue int     // streams that wait behind them
}

// Batching is an engine with continuous batching (model A).
func Batching(speed float64) Engine { return Engine{Speed: speed, Knee: 32, Slots: 64, Queue: 64} }

// FIFO is an engine that gives each of its slots the full speed (model B).
func FIFO(speed float64) Engine {
	return Engine{Speed: speed, Knee: math.Inf(1), Slots: 8, Queue: 256}
}

// rate is what each of c active streams gets.
func (e Engine) rate(c int) float64 { return e.Speed / (1 + float64(c-1)/e.Knee) }

// capacity is the work per second that the engine does with all slots taken.
func (e Engine) capacity() float64 { return float64(e.Slots) * e.rate(e.Slots) }

// server is one engine at work. All active streams get the same share at any
// moment, so one sum, work, tells for all of them how far they are.
type server struct {
	Engine
	factor  float64 // what faults leave of the speed; 0: frozen
	refuses bool    // a dead one: refuses every connection
	absent  bool    // not joined yet

	now   float64    // when work was true
	work  float64    // seconds of work alone that each active stream got since the server was idle
	each  float64    // work per second of each active stream now
	marks []*request // the active ones, a heap by what work their next mark is at
	queue []*request // in order of arrival
}

// workAt is work at a moment up to the next mark.
func (s *server) workAt(now float64) float64 {
	if len(s.marks) == 0 {
		return s.work
	}
	return s.work + (now-s.now)*s.each
}

func (s *server) advance(now float64) { s.work, s.now = s.workAt(now), now }

func (s *server) share() { s.each = s.factor * s.rate(len(s.marks)) }

// due is when the first stream reaches its mark if nothing changes until then.
func (s *server) due() float64 {
	if len(s.marks) == 0 || s.each == 0 {
		return math.Inf(1)
	}
	return s.now + max(0, s.marks[0].mark-s.work)/s.each
}

// held is the number of streams that the server has, active or not.
func (s *server) held() int { return len(s.marks) + len(s.queue) }

// add takes a stream in or says that there is no room. The server is advanced.
func (s *server) add(r *request) bool {
	switch {
	case len(s.marks) < s.Slots:
		s.activate(r)
	case len(s.queue) < s.Queue:
		s.queue = append(s.queue, r)
	default:
		return false
	}
	return true
}

func (s *server) activate(r *request) {
	if len(s.marks) == 0 {
		s.work = 0 // small figures keep the sum exact however long a run is
	}
	r.begun = s.work
	r.mark = s.work + r.prefill() + 1.0/decodeRate
	r.place = len(s.marks)
	s.marks = append(s.marks, r)
	s.up(r.place)
	s.share()
}

// reach brings the server to the mark that is due and returns whose it is; first
// says that it was the stream's first token, otherwise it was its last.
func (s *server) reach(now float64) (r *request, first bool) {
	r = s.marks[0]
	s.work, s.now = r.mark, now
	if !r.answering {
		r.answering = true
		r.mark = r.begun + r.work() // at once, where the first token is the last
		s.down(0)
		return r, true
	}
	s.removeFirst()
	if len(s.queue) > 0 {
		s.activate(s.queue[0])
		s.queue = slices.Delete(s.queue, 0, 1)
	}
	return r, false
}

func (s *server) removeFirst() {
	last := len(s.marks) - 1
	s.swap(0, last)
	s.marks[last] = nil
	s.marks = s.marks[:last]
	if last > 0 {
		s.down(0)
	}
	s.share()
}

func (s *server) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if s.marks[i].mark >= s.marks[parent].mark {
			return
		}
		s.swap(i, parent)
		i = parent
	}
}

func (s *server) down(i int) {
	for {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(s.marks); child++ {
			if s.marks[child].mark < s.marks[least].mark {
				least = child
			}
		}
		if least == i {
			return
		}
		s.swap(i, least)
		i = least
	}
}

func (s *server) swap(i, j int) {
	s.marks[i], s.marks[j] = s.marks[j], s.marks[i]
	s.marks[i].place, s.marks[j].place = i, j
}
