package llm

import (
	"container/heap"
	"math"
	"slices"
	"sync/atomic"
)

// job is one stream in the engine. The engine's lock guards it, but for what
// the handler is told: ready, made and cached.
type job struct {
	session string
	prompt  int // tokens of the whole context
	want    int // tokens of the answer

	ready  chan struct{} // gets a value when made grew; capacity 1, so nobody waits to say it
	made   atomic.Int32  // tokens of the answer that exist
	cached atomic.Int32  // tokens of the prompt that needed no prefill; stands before the first token does

	first float64 // the batch's work at which the prefill is over
	next  float64 // and at which the next token is due
	pos   int     // place in the heap, or posWaiting or posGone
}

const (
	posWaiting = -1
	posGone    = -2
)

func newJob(r *request) *job {
	return &job{session: r.session, prompt: r.prompt, want: r.want, ready: make(chan struct{}, 1), pos: posGone}
}

// batch is the engine's arithmetic and nothing else: no clock, no goroutine, no
// lock. Every active stream gets the same share of speed at any moment, so one
// sum, work, tells for all of them how far they are; a token is due when work
// reaches a fixed figure of its stream. Between two calls the rate changes only
// at those figures, and advance goes from one to the next at its exact time:
// however late it is called, the result is the same.
type batch struct {
	prefill, decode float64 // tokens per second of one stream alone
	knee            float64
	maxActive       int
	maxQueue        int
	factor          float64 // what faults leave of the speed; 0: frozen
	warm            *sessions

	now    float64 // seconds on the engine's clock up to which all below is true
	work   float64 // seconds of work alone that each active stream got since the batch was empty
	active jobHeap
	queue  []*job // in order of arrival

	prompted, hit, generated int64 // tokens: of prompts, of these without prefill, of answers
	held                     int   // tokens of contexts and answers in the batch
}

// rate is work per second of each active stream.
func (b *batch) rate() float64 {
	return b.factor / (1 + float64(len(b.active)-1)/b.knee)
}

// due is when the next token comes if nothing changes until then.
func (b *batch) due() float64 {
	if len(b.active) == 0 || b.factor == 0 {
		return math.Inf(1)
	}
	return b.now + max(0, b.active[0].next-b.work)/b.rate()
}

func (b *batch) advance(now float64) {
	for t := b.due(); t <= now; t = b.due() {
		j := b.active[0]
		b.now, b.work = t, j.next
		b.emit(j)
	}
	if len(b.active) > 0 {
		b.work += max(0, now-b.now) * b.rate()
	}
	b.now = max(b.now, now)
}

// emit gives j its next token, and its place to a waiting stream after the last.
func (b *batch) emit(j *job) {
	n := int(j.made.Add(1))
	b.generated++
	b.held++
	if n == 1 {
		b.prompted += int64(j.prompt)
		b.hit += int64(j.cached.Load())
		b.warm.keep(j.session, j.prompt)
	}
	if n < j.want {
		j.next = j.first + float64(n+1)/b.decode // a product, not a sum: nothing adds up
		heap.Fix(&b.active, j.pos)
	} else {
		b.remove(j)
	}
	select {
	case j.ready <- struct{}{}:
	default: // told already and not yet looked
	}
}

// add takes j in or says that there is no room.
func (b *batch) add(j *job) bool {
	switch {
	case len(b.active) < b.maxActive:
		b.activate(j)
	case len(b.queue) < b.maxQueue:
		j.pos = posWaiting
		b.queue = append(b.queue, j)
	default:
		return false
	}
	return true
}

func (b *batch) activate(j *job) {
	if len(b.active) == 0 {
		b.work = 0 // small figures keep the sum exact however long the server lives
	}
	cached := min(b.warm.tokens(j.session), j.prompt-1) // the last token always runs, it makes the first of the answer
	j.cached.Store(int32(cached))
	j.first = b.work + float64(j.prompt-cached)/b.prefill
	j.next = j.first + 1/b.decode
	b.held += j.prompt
	heap.Push(&b.active, j)
}

// remove ends j, done or not; a stream that is gone may be removed again.
func (b *batch) remove(j *job) {
	switch {
	case j.pos == posWaiting:
		b.queue = slices.DeleteFunc(b.queue, func(q *job) bool { return q == j })
		j.pos = posGone
	case j.pos >= 0:
		heap.Remove(&b.active, j.pos)
		made := int(j.made.Load())
		b.held -= j.prompt + made
		if made > 0 {
			b.warm.keep(j.session, j.prompt+made)
		}
		if len(b.queue) > 0 {
			b.activate(b.queue[0])
			b.queue = slices.Delete(b.queue, 0, 1)
		}
	}
}

// jobHeap orders streams by their next token.
type jobHeap []*job

func (h jobHeap) Len() int           { return len(h) }
func (h jobHeap) Less(a, b int) bool { return h[a].next < h[b].next }
func (h jobHeap) Swap(a, b int) {
	h[a], h[b] = h[b], h[a]
	h[a].pos, h[b].pos = a, b
}

func (h *jobHeap) Push(x any) {
	j := x.(*job)
	j.pos = len(*h)
	*h = append(*h, j)
}

func (h *jobHeap) Pop() any {
	last := len(*h) - 1
	j := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	j.pos = posGone
	return j
}
