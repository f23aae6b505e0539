package history

import (
	"bufio"
	"encoding/json"
	"io"
	"strconv"
	"time"
)

// Line is what a node's access log says of one request.
type Line struct {
	Node      string    `json:"node"`
	At        time.Time `json:"ts"` // its head had been read
	RequestID string    `json:"request_id"`
	Status    int       `json:"status"`
	Code      string    `json:"code"`
	Backend   string    `json:"backend"` // the last that was tried
	Epoch     uint64    `json:"session_epoch"`
	Lookup    string    `json:"lookup"`
	Stale     bool      `json:"session_stale"` // it ran under an exception: another turn may have run elsewhere
	Attempts  int       `json:"attempts"`
	First     *float64  `json:"ttfb_ms"`     // milliseconds to the head of the answer; null: none came
	Took      float64   `json:"duration_ms"` // milliseconds
	Reason    string    `json:"reason"`
}

// Ended is when its last byte had gone.
func (l Line) Ended() time.Time {
	return l.At.Add(time.Duration(l.Took * float64(time.Millisecond)))
}

// Settled is when it was settled where the request goes, at the latest: the head
// of its answer came, or else it ended.
func (l Line) Settled() time.Time {
	if l.First == nil {
		return l.Ended()
	}
	return l.At.Add(time.Duration(*l.First * float64(time.Millisecond)))
}

// ReadLines reads a node's access log. A line that a death cut short is left out.
func ReadLines(node string, r io.Reader) ([]Line, error) {
	in := bufio.NewScanner(r)
	in.Buffer(nil, 64<<10)
	var lines []Line
	for in.Scan() {
		l := Line{Node: node}
		if json.Unmarshal(in.Bytes(), &l) == nil && l.RequestID != "" {
			l.Node = node
			lines = append(lines, l)
		}
	}
	return lines, in.Err()
}

// Join fills in what a turn's client could not know and its backend does: the epoch.
func (r *Run) Join() {
	epochs := map[string]uint64{}
	for _, s := range r.Served {
		if e, err := strconv.ParseUint(s.Epoch, 10, 64); err == nil {
			epochs[s.RequestID] = e
		}
	}
	for i := range r.Turns {
		r.Turns[i].Epoch = epochs[r.Turns[i].ID]
	}
}

// Read is one question to a node's admin API where a session lives. The shard's
// leader answers it.
type Read struct {
	Session string    `json:"session"`
	Node    string    `json:"node"` // that was asked
	Began   time.Time `json:"began"`
	Ended   time.Time `json:"ended"`
	Backend string    `json:"backend"` // "": it lives nowhere
	Epoch   uint64    `json:"epoch"`
	Guess   bool      `json:"guess"` // provisional
}
