package llm

import (
	"sync"
	"time"
)

// Outcome is how a turn ended.
type Outcome string

// The outcomes; the list is closed.
const (
	Done    Outcome = "done"    // every token was written
	Aborted Outcome = "aborted" // the client left, or took no byte for a minute
	Broken  Outcome = "broken"  // a fault of ours broke it
	Shed    Outcome = "shed"    // batch and queue were full: 429
	Stopped Outcome = "stopped" // the server was stopped while it ran
)

// Turn is the record of one completion request, made when it ended. A turn that
// is done is on record before its client can see the end of the answer.
type Turn struct {
	Seq       uint64    `json:"seq"` // 1 is the server's first; no gaps
	Backend   string    `json:"backend"`
	RequestID string    `json:"request_id"`
	Session   string    `json:"session"`
	Epoch     string    `json:"epoch"` // as the request's X-Starling-Epoch said; empty without
	Model     string    `json:"model"`
	Stream    bool      `json:"stream"`
	Start     time.Time `json:"start"`               // the request was read
	FirstByte time.Time `json:"first_byte,omitzero"` // the first token was written; zero if none was
	End       time.Time `json:"end"`
	Prompt    int       `json:"prompt_tokens"`
	Cached    int       `json:"cached_tokens"` // of the prompt, not charged again
	Output    int       `json:"output_tokens"` // written, not only made
	Warm      bool      `json:"warm"`
	Outcome   Outcome   `json:"outcome"`
}

// ring keeps the last turns.
type ring struct {
	mu    sync.Mutex
	limit int
	turns []Turn // turn number n stands at (n-1) % limit
	last  uint64
}

func (r *ring) add(t Turn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last++
	t.Seq = r.last
	if len(r.turns) < r.limit {
		r.turns = append(r.turns, t)
		return
	}
	r.turns[(t.Seq-1)%uint64(r.limit)] = t
}

// after copies what came after number seq, oldest first, and says how many of
// that are no longer kept.
func (r *ring) after(seq uint64) (turns []Turn, lost uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	kept := r.last - uint64(len(r.turns)) // the number before the oldest
	if seq < kept {
		lost, seq = kept-seq, kept
	}
	turns = []Turn{}
	for n := seq; n < r.last; n++ {
		turns = append(turns, r.turns[n%uint64(r.limit)])
	}
	return turns, lost
}

func (r *ring) count() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last
}
