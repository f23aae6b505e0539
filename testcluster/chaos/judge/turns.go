package judge

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/starling-lb/starling/testcluster/chaos/history"
)

const (
	electing   = 5 * time.Second  // a shard may be without a leader after a fault, 4.5 s and the road
	reconciled = 30 * time.Second // guesses are agreed on, once there are leaders
)

// quorum is P4.
func quorum(t *trial, f *finding) {
	refused, guesses := 0, 0
	for _, l := range t.Lines {
		if l.Code != "no_leader" {
			continue
		}
		refused++
		nodes := func(h history.Fault) bool { return h.Kind != history.Backend && h.Kind != history.Traffic }
		if !t.strict() || !t.any(l.At.Add(-electing), l.At, nodes) && t.late < lease/4 { // a machine so busy has elections without being hurt
			f.breach(where{at: l.At, turns: []string{l.RequestID}}, "%s refused request %s: no_leader", l.Node, l.RequestID)
		}
	}
	for _, session := range t.sessions() {
		guesses += guessed(t, f, session)
	}
	if n := t.total("starling_provisional_bindings"); n > 0 {
		f.breach(where{}, "at the end %.0f sessions live where a node guessed, and nobody has agreed", n)
	}
	f.looked(len(t.Turns))
	f.number("%d refused for want of a leader, %d turns by guesses", refused, guesses)
}

// guessed counts the turns of a session that went by a guess. Guesses of nodes that
// see the same backends are alike, until somebody agrees on one.
func guessed(t *trial, f *finding, session string) (n int) {
	var last saying
	for _, s := range t.said[session] {
		if s.lookup != "fallback" || s.epoch > 0 {
			last = saying{}
			continue
		}
		n++
		sick := kinds(history.Backend, history.AddBackend, history.Drain)
		if last.backend != "" && last.backend != s.backend && !t.any(last.from.Add(-ejection), s.to, sick) {
			f.breach(where{at: s.from, session: session}, "%s guesses that session %s lives at %s, %s guessed %s", s.who, session, s.backend, last.who, last.backend)
		}
		last = s
	}
	return n
}

// shed is P11. A refusal has its reason, and traffic that is too much takes nothing
// from what can be served.
func shed(t *trial, f *finding) {
	why := map[string]int{}
	for i := range t.Turns {
		turn := &t.Turns[i]
		if turn.End != "refused" || turn.Code == "" {
			continue
		}
		why[turn.Code]++
		if !t.due(turn) {
			f.breach(where{at: turn.Ended, turns: []string{turn.ID}}, "turn %s was refused: %s, and nothing speaks for it", turn.ID, turn.Code)
		}
	}
	for _, h := range t.Faults {
		if h.Kind == history.Traffic && !t.any(h.Began, h.Ended, func(o history.Fault) bool { return o.ID != h.ID && o.Kind != history.AddBackend }) {
			goodput(t, f, h)
		}
	}
	f.looked(len(t.Turns))
	f.number("refused: %s", each(why))
}

// each is how often each thing was, by name.
func each(n map[string]int) string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(n)) {
		list = append(list, fmt.Sprintf("%s %d", name, n[name]))
	}
	return cmp.Or(strings.Join(list, ", "), "none")
}

// due says whether a refusal has its reason in what was done.
func (t *trial) due(turn *history.Turn) bool {
	from := turn.Began.Add(-ejection)
	switch turn.Code {
	case "saturated":
		return turn.Ended.Sub(turn.Began) < 7*time.Second // the queue's five, and the road
	case "no_backend", "backend_refused", "backend_broke", "backend_bad_response", "backend_timeout":
		return t.any(from, turn.Ended, func(f history.Fault) bool {
			return f.Kind == history.Backend || f.Kind == history.AddBackend || f.Kind == history.Drain
		})
	case "draining":
		return t.any(turn.Began, turn.Ended, func(f history.Fault) bool { return f.Kind != history.Backend && f.Kind != history.Traffic })
	case "no_leader", "too_many_connections":
		return true // P4 looks at the first; the second says a limit
	}
	return false
}

// goodput compares what was served whole in a second, before and while traffic was
// too much.
func goodput(t *trial, f *finding, h history.Fault) {
	window := h.Ended.Sub(h.Began)
	if h.Ended.IsZero() || window < 2*time.Second {
		return
	}
	before, during := 0, 0
	start := h.Began.Add(-window)
	if start.Before(t.Began) {
		start = t.Began
	}
	for i := range t.Turns {
		switch turn := &t.Turns[i]; {
		case !turn.Whole:
		case turn.Ended.After(start) && turn.Ended.Before(h.Began):
			before++
		case turn.Ended.After(h.Began) && turn.Ended.Before(h.Ended):
			during++
		}
	}
	lasted := h.Began.Sub(start).Seconds()
	if lasted < 2 || before < 20 {
		return
	}
	a, b := float64(before)/lasted, float64(during)/window.Seconds()
	f.number("goodput %.1f/s before, %.1f/s under %s", a, b, h.Detail)
	if b < 0.8*a {
		f.breach(where{at: h.Ended}, "goodput fell from %.1f to %.1f turns a second under %s", a, b, h.Detail)
	}
}

// killed is about the nodes that died of nothing but a kill: how long their turns
// were the worse for it.
func killed(t *trial, f *finding) {
	worst, deaths := time.Duration(0), 0
	for _, h := range t.Faults {
		if h.Kind != history.Kill || len(h.Target) != 1 || t.any(h.Began.Add(-2*time.Second), h.Began.Add(3*time.Second), func(o history.Fault) bool { return o.ID != h.ID }) {
			continue
		}
		deaths++
		last, who := t.affected(h)
		worst = max(worst, last)
		if limit := time.Second + 4*t.late; last > limit {
			f.breach(where{at: who.Due, turns: []string{who.ID}}, "%v after %s died a new turn was still the worse for it, %v allowed", last, nameOf(h), limit)
		}
	}
	f.looked(deaths)
	f.number("%d deaths by themselves, last affected new turn after %.2fs", deaths, worst.Seconds())
}

func nameOf(h history.Fault) string {
	if len(h.Target) == 0 {
		return "a node"
	}
	return h.Target[0]
}

// slower is by how much a turn takes longer than usual that counts as affected: more
// than a session without a leader may wait (250 ms for a binding, 100 ms for what
// replicas have applied, and the road).
const slower = 400 * time.Millisecond

// affected is how long after a death the last new turn reached a backend that was the
// worse for it, and which. Turns that were due when the node was back, or when the next
// fault had begun, are none of it.
func (t *trial) affected(h history.Fault) (after time.Duration, who *history.Turn) {
	usual, until := t.usual(h.Began), h.Began.Add(10*time.Second)
	if !h.Ended.IsZero() && h.Ended.Before(until) {
		until = h.Ended
	}
	for _, o := range t.Faults {
		if o.Began.After(h.Began) && o.Began.Before(until) {
			until = o.Began
		}
	}
	for _, w := range t.ways() {
		due := w.first.Due
		if due.After(h.Began) && due.Before(until) && !w.reached.IsZero() && w.reached.Sub(due) > usual+slower && w.reached.Sub(h.Began) > after {
			after, who = w.reached.Sub(h.Began), w.first
		}
	}
	return after, who
}

// usual is the time to a backend that all but one in a hundred had in the ten
// seconds before.
func (t *trial) usual(before time.Time) time.Duration {
	var all []time.Duration
	for _, w := range t.ways() {
		if w.first.Due.After(before.Add(-10*time.Second)) && w.reached.Before(before) && !w.reached.IsZero() {
			all = append(all, w.reached.Sub(w.first.Due))
		}
	}
	return quantile(all, 0.99)
}

// way is one turn with all its tries: the first of them, and when a backend had read
// the first request that came through to the first byte of an answer.
type way struct {
	first   *history.Turn
	reached time.Time
}

func (t *trial) ways() map[string]*way {
	all := map[string]*way{}
	for i := range t.Turns {
		turn := &t.Turns[i]
		key, _, _ := strings.Cut(turn.ID, ".")
		w := all[key]
		if w == nil {
			w = &way{first: turn}
			all[key] = w
		}
		if turn.Attempt < w.first.Attempt {
			w.first = turn
		}
		if turn.First.IsZero() || turn.Status >= 300 {
			continue
		}
		for _, s := range t.served[turn.ID] {
			if w.reached.IsZero() || s.Start.Before(w.reached) {
				w.reached = s.Start
			}
		}
	}
	return all
}
