package wire

import (
	"sync"
	"sync/atomic"
)

// Replay keeps what a Relay sends, so that it can be sent once more. Of a body
// that is longer than its limit it keeps nothing.
type Replay struct {
	mu   sync.Mutex // guards what follows: the relay adds, another goroutine drops
	sent []byte
	room int64 // that is left; below zero, nothing is kept
	held *atomic.Int64
}

// Begin starts anew, for a body of which at most limit bytes are kept. held, which
// many share, counts what they hold.
func (r *Replay) Begin(limit int64, held *atomic.Int64) {
	r.Drop()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.room, r.held = limit, held
}

// add keeps a piece, whether or not the receiver will have got it.
func (r *Replay) add(p []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.room < 0 {
		return
	}
	if r.room -= int64(len(p)); r.room < 0 {
		r.empty()
		return
	}
	r.sent = append(r.sent, p...)
	r.held.Add(int64(len(p)))
}

// Take appends what was kept to dst; ok is false where that is not all.
func (r *Replay) Take(dst []byte) (all []byte, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.room < 0 {
		return dst, false
	}
	dst = append(dst, r.sent...)
	r.empty()
	return dst, true
}

// Drop ends the keeping.
func (r *Replay) Drop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.empty()
	r.room = -1
}

func (r *Replay) empty() {
	if len(r.sent) > 0 {
		r.held.Add(-int64(len(r.sent)))
	}
	r.sent = nil
}
