package traffic

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/starling-lb/starling/testcluster/chaos/history"
)

// The kinds of turn.
const (
	sse       = "sse"
	websocket = "websocket"
	plain     = "plain"
	upload    = "upload"
)

// How a try ends.
const (
	clean       = "clean"       // as HTTP has it; whether whole is another matter
	broken      = "broken"      // visibly
	refused     = "refused"     // with a status
	unreachable = "unreachable" // no connection, or no answer on one that was just opened
	left        = "left"        // by the client
)

// plan is one turn before it is taken.
type plan struct {
	session string
	number  int
	kind    string
	due     time.Time
	seed    uint64
	prompt  int // tokens
	want    int // tokens of the answer, or messages
	leave   int // after so many tokens or messages the client leaves; 0: it stays
	entry   int // where to begin among the entries
}

func (t *Traffic) plan(dice *rand.Rand, session string, number int, due time.Time) plan {
	p := plan{session: session, number: number, due: due, seed: dice.Uint64() >> 1, entry: dice.IntN(1 << 20)}
	switch n := dice.IntN(100); {
	case n < 60:
		p.kind = sse
	case n < 75:
		p.kind = plain
	case n < 87:
		p.kind = websocket
	default:
		p.kind = upload
	}
	p.prompt, p.want = 1+dice.IntN(300), 1+dice.IntN(2*t.opts.Tokens)
	if n := uint64(len(t.opts.Trace)); n > 0 {
		row := t.opts.Trace[t.rows.Add(1)%n]
		p.prompt, p.want = row.Context, row.Generated
	}
	if p.kind == websocket {
		p.want = 2 + dice.IntN(8)
	}
	if dice.Float64() < leaving && p.want > 1 && (p.kind == sse || p.kind == websocket) {
		p.leave = 1 + dice.IntN(p.want-1)
	}
	return p
}

// pause is between two tries of who could not get in.
const pause = 50 * time.Millisecond

// take has one turn, by as many tries as it needs and may have.
func (t *Traffic) take(p plan) {
	if !t.begin() {
		return
	}
	defer t.over()
	n := t.next.Add(1)
	for attempt := 1; ; attempt++ {
		try := t.try(p, fmt.Sprintf("t%d.%d", n, attempt), attempt)
		t.keep(try)
		again := try.End == refused || try.End == unreachable
		if !again || attempt > int(t.retries.Load()) || !t.wait(pause) {
			return
		}
	}
}

// try is one request, at the next entry.
func (t *Traffic) try(p plan, id string, attempt int) *history.Turn {
	turn := &history.Turn{ID: id, Session: p.session, Number: p.number, Attempt: attempt, Kind: p.kind, Due: p.due, Began: time.Now()}
	defer func() { turn.Ended = time.Now() }()
	entries := t.opts.Entries()
	if len(entries) == 0 {
		turn.End, turn.Note = unreachable, "there is no entry"
		return turn
	}
	at := entries[(p.entry+attempt-1)%len(entries)]
	turn.Node = at.Node
	ctx, cancel := context.WithTimeout(t.ctx, t.opts.Patience)
	defer cancel()
	var err error
	switch p.kind {
	case websocket:
		err = t.socket(ctx, at.URL, p, turn)
	default:
		err = t.ask(ctx, at.URL, p, turn)
	}
	if err != nil && turn.Note == "" {
		turn.Note = err.Error()
	}
	return turn
}

func (b *books) keep(turn *history.Turn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.turns = append(b.turns, *turn)
	switch {
	case turn.Whole:
		b.now.Whole++
	case turn.End == broken:
		b.now.Broken++
	case turn.End == refused:
		b.now.Refused++
	case turn.End == unreachable:
		b.now.Unreachable++
	case turn.End == left:
		b.now.Left++
	default:
		b.now.Wrong++
	}
}

func (t *Traffic) begin() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.now.Open >= t.opts.MaxOpen {
		t.now.Skipped++
		return false
	}
	t.now.Open++
	return true
}

func (b *books) over() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.now.Open--
}
