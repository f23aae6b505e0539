package judge

import (
	"slices"
	"strings"
	"time"

	"github.com/starling-lb/starling/testcluster/chaos/history"
	"github.com/starling-lb/starling/testcluster/llm"
)

// oneAtATime is P3, as backends saw it. The exceptions are those that the promise
// states.
func oneAtATime(t *trial, f *finding) {
	pairs := map[string]int{}
	bySession := map[string][]llm.Turn{}
	for _, s := range t.Served {
		if s.Session != "" {
			bySession[s.Session] = append(bySession[s.Session], s)
		}
	}
	for _, all := range bySession {
		slices.SortFunc(all, func(a, b llm.Turn) int { return a.Start.Compare(b.Start) })
		for i, a := range all {
			for _, b := range all[i+1:] {
				if !b.Start.Add(spread).Before(a.End) {
					break
				}
				if a.Backend == b.Backend {
					continue
				}
				why := t.excuse(a, b)
				pairs[why]++
				if why == "" {
					f.breach(where{at: b.Start, session: a.Session, turns: []string{a.RequestID, b.RequestID}},
						"session %s runs at %s (epoch %s) and at %s (epoch %s) at once, for %.3fs", a.Session, a.Backend, a.Epoch, b.Backend, b.Epoch, a.End.Sub(b.Start).Seconds())
				}
			}
		}
	}
	f.looked(len(t.Served))
	f.number("%d turns at backends; side by side by exception: %d backend dead, %d node dead, %d available, %d stopped", len(t.Served), pairs["backend"], pairs["node"], pairs["available"], pairs["stopped"])
}

// excuse is the exception under which b may have begun elsewhere while a ran.
func (t *trial) excuse(a, b llm.Turn) string {
	var nodes [2]string
	for i, id := range []string{a.RequestID, b.RequestID} {
		if turn := t.turns[id]; turn != nil {
			nodes[i] = turn.Node
		}
	}
	between := func(is func(history.Fault) bool) bool { return t.any(a.Start, b.Start, is) }
	stopped := kinds(history.Pause)
	switch {
	case between(func(f history.Fault) bool { return f.Kind == history.Backend && slices.Contains(f.Breaks, a.Backend) }):
		return "backend"
	case between(func(f history.Fault) bool {
		return !stopped(f) && nodes[0] != "" && slices.Contains(f.Breaks, nodes[0])
	}):
		return "node"
	case between(func(f history.Fault) bool { return stopped(f) && aims(f, nodes[:]...) }):
		return "stopped"
	case t.strict():
		return ""
	case t.stale(a) || t.stale(b):
		return "available"
	case t.lost(b.RequestID), a.Epoch == "" && t.lost(a.RequestID):
		return "node" // with it went its word of why, as of a guess
	}
	return ""
}

// stale says whether a turn's node knew, and logged, that it ran under an exception.
func (t *trial) stale(s llm.Turn) bool { return t.lines[s.RequestID].Stale }

// uncut is P6.
func uncut(t *trial, f *finding) {
	broken, untaken := 0, 0
	for i := range t.Turns {
		turn := &t.Turns[i]
		if turn.End != "broken" {
			continue
		}
		if t.untaken(turn) {
			untaken++
			continue
		}
		broken++
		if !t.explained(turn) {
			f.breach(where{at: turn.Ended, session: turn.Session, turns: []string{turn.ID}}, "turn %s broke, and neither %s nor %q was hurt", turn.ID, turn.Node, turn.Backend)
		}
	}
	for _, l := range t.Lines {
		if l.Reason == "drained" && !t.hurt(l.Node, l.At, l.Ended()) {
			f.breach(where{at: l.Ended(), turns: []string{l.RequestID}}, "%s cut request %s at the end of a drain", l.Node, l.RequestID)
		}
	}
	if n := t.total("starling_move_cut_streams_total"); n > 0 {
		f.breach(where{}, "moves cut %.0f streams", n)
	}
	f.looked(len(t.Turns))
	f.number("%d streams, %d broken, each with its own node or backend, %d that nobody took", len(t.Turns), broken, untaken)
}

// untaken says whether a turn was never begun: it came as its node closed its
// listener, or the connection that it came by, and nobody, node nor backend, has it on
// record. HTTP/1.1 lets a server close a connection that is idle, and knows no word by
// which a client hears of that before it asks; who has sent a POST by then may not send
// it again by itself.
func (t *trial) untaken(turn *history.Turn) bool {
	_, logged := t.lines[turn.ID]
	ending := kinds(history.Restart, history.Upgrade, history.Move, history.Leave)
	return turn.First.IsZero() && !logged && len(t.served[turn.ID]) == 0 &&
		(t.succeeded(turn.Node, turn.Began, turn.Ended) || t.any(turn.Began, turn.Ended, func(f history.Fault) bool { return ending(f) && aims(f, turn.Node) }))
}

// explained says whether a turn's own node or backend was hurt while it ran. The
// backend of one that broke before its answer is known to the backends and the
// access log, or else may be any.
func (t *trial) explained(turn *history.Turn) bool {
	names := []string{turn.Node, turn.Backend, t.lines[turn.ID].Backend}
	for _, s := range t.served[turn.ID] {
		names = append(names, s.Backend)
	}
	unknown := strings.Join(names[1:], "") == ""
	return t.any(turn.Began, turn.Ended, func(f history.Fault) bool {
		return slices.ContainsFunc(f.Breaks, func(n string) bool {
			return slices.Contains(names, n) || unknown && f.Kind == history.Backend
		})
	})
}

// ending is P7.
func ending(t *trial, f *finding) {
	whole := 0
	for i := range t.Turns {
		switch turn := &t.Turns[i]; {
		case turn.Whole:
			whole++
		case turn.End == "clean" && turn.Status < 300:
			f.breach(where{at: turn.Ended, session: turn.Session, turns: []string{turn.ID}}, "turn %s ended as if it were whole: %s", turn.ID, turn.Note)
		}
	}
	for id, all := range t.served {
		turn := t.turns[id]
		if turn != nil && len(all) > 1 { // all that our clients send backends are POSTs and sockets
			f.breach(where{at: all[1].Start, turns: []string{id}}, "request %s was begun %d times: at %s and at %s", id, len(all), all[0].Backend, all[1].Backend)
		}
	}
	f.looked(len(t.Turns))
	f.number("%d turns whole to the last byte", whole)
}

// letGo is P8. What this machine was late by itself is not held against starling.
func letGo(t *trial, f *finding) {
	var took []time.Duration
	var worst *history.Turn
	most := time.Duration(0)
	for i := range t.Turns {
		turn := &t.Turns[i]
		if turn.End != "left" || t.any(turn.Ended, turn.Ended.Add(spread), func(h history.Fault) bool { return aims(h, turn.Node, turn.Backend) }) {
			continue
		}
		for _, s := range t.served[turn.ID] {
			d := max(0, s.End.Sub(turn.Ended))
			if took = append(took, d); d > most {
				most, worst = d, turn
			}
		}
	}
	p99, limit := quantile(took, 0.99), 50*time.Millisecond+4*t.late
	if p99 > limit {
		f.breach(where{at: worst.Ended, turns: []string{worst.ID}}, "a backend had its client's place %v after it left; 99 of 100 within %v, %v allowed", most, p99, limit)
	}
	f.looked(len(took))
	f.number("%d clients left, p99 %v (allowed: %v)", len(took), p99.Round(time.Millisecond/10), limit.Round(time.Millisecond))
}
