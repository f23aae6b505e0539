package judge

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/starling-lb/starling/testcluster/chaos/history"
	"github.com/starling-lb/starling/testcluster/llm"
)

// What a promise leaves to clocks, to the network and to a busy machine.
const (
	lease     = 2 * time.Second        // for which a node may use what it cached
	spread    = 500 * time.Millisecond // of news, and until a backend notices a close
	aftermath = time.Second            // of a fault that has ended
	grace     = 5 * time.Second        // for which a process that has handed its node over keeps connections that bring nothing
)

// trial is a run with what the checkers need at hand.
type trial struct {
	*history.Run
	turns  map[string]*history.Turn  // by id
	lines  map[string]history.Line   // by request id; the last, where nodes have several
	served map[string][]llm.Turn     // by request id
	said   map[string][]saying       // by session, by the time that they were settled
	none   map[string][]history.Read // reads that found no binding, by session
	whole  map[string]bool           // sessions of which a turn was
	late   time.Duration             // how late this machine was, that all of it ran on: the clients' p99
}

// saying is somebody's word of where a session lives.
type saying struct {
	session, backend string
	epoch            uint64
	who              string // a node, or "backend bN"
	lookup           string // how a node found it; "": no turn, or nobody knows
	stale            bool   // by the node's own word no agreed binding
	from, to         time.Time
	id               string // of the turn
}

func newTrial(run *history.Run) *trial {
	t := &trial{Run: run, turns: map[string]*history.Turn{}, lines: map[string]history.Line{}, served: map[string][]llm.Turn{}, said: map[string][]saying{}, none: map[string][]history.Read{}, whole: map[string]bool{}}
	var late []time.Duration
	for i := range run.Turns {
		turn := &run.Turns[i]
		t.turns[turn.ID] = turn
		t.whole[turn.Session] = t.whole[turn.Session] || turn.Whole
		if !turn.Due.IsZero() {
			late = append(late, turn.Began.Sub(turn.Due))
		}
	}
	t.late = quantile(late, 0.99)
	for _, l := range run.Lines {
		t.lines[l.RequestID] = l
	}
	for _, s := range run.Served {
		t.served[s.RequestID] = append(t.served[s.RequestID], s)
	}
	t.hear()
	return t
}

// hear gathers who said what of each session.
func (t *trial) hear() {
	for id, l := range t.lines {
		if turn := t.turns[id]; turn != nil && turn.Session != "" && l.Backend != "" && l.Code == "" { // of one that it refused it names what it tried last
			t.say(saying{turn.Session, l.Backend, l.Epoch, l.Node, l.Lookup, l.Stale, l.At, l.Settled(), id})
		}
	}
	for id, all := range t.served {
		for _, s := range all {
			epoch, _ := strconv.ParseUint(s.Epoch, 10, 64) // empty: a guess, or no session
			if l, told := t.lines[id]; s.Session != "" && !(told && l.Code == "") {
				t.say(saying{s.Session, s.Backend, epoch, "backend " + s.Backend, "", false, s.Start, s.Start, id})
			}
		}
	}
	for _, r := range t.Reads {
		switch {
		case r.Guess:
		case r.Epoch > 0:
			t.say(saying{r.Session, r.Backend, r.Epoch, r.Node, "read", false, r.Began, r.Ended, ""})
		default:
			t.none[r.Session] = append(t.none[r.Session], r)
		}
	}
	for _, d := range t.Last {
		for key, s := range d.Sessions {
			t.say(saying{key, s.Backend, s.Epoch, d.Node, "read", false, d.At, d.At, ""})
		}
	}
	for _, all := range t.said {
		slices.SortStableFunc(all, func(a, b saying) int { return cmp.Or(a.to.Compare(b.to), cmp.Compare(a.id, b.id)) })
	}
}

func (t *trial) say(s saying) { t.said[s.session] = append(t.said[s.session], s) }

// sessions are all that somebody spoke of, in an order that stays.
func (t *trial) sessions() []string {
	var keys []string
	for key := range t.said {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// strict says whether the pool is.
func (t *trial) strict() bool { return t.Consistency == "strict" }

// overlaps says whether a fault was there, or its aftermath, between two moments.
func overlaps(f history.Fault, from, to time.Time) bool {
	return !f.Began.After(to) && (f.Ended.IsZero() || !f.Ended.Add(aftermath).Before(from))
}

// hurt says whether a fault that breaks name's streams was there between two
// moments.
func (t *trial) hurt(name string, from, to time.Time) bool {
	return t.any(from, to, func(f history.Fault) bool { return slices.Contains(f.Breaks, name) })
}

// any looks for a fault between two moments.
func (t *trial) any(from, to time.Time, is func(history.Fault) bool) bool {
	return slices.ContainsFunc(t.Faults, func(f history.Fault) bool { return overlaps(f, from, to) && is(f) })
}

// succeeded says whether, between two moments, another process became a node, or the
// one before still had connections that bring nothing.
func (t *trial) succeeded(node string, from, to time.Time) bool {
	return slices.ContainsFunc(t.Faults, func(f history.Fault) bool {
		return f.Kind == history.HandOver && aims(f, node) && !f.Began.After(to) && (f.Ended.IsZero() || !f.Ended.Add(grace+2*time.Second).Before(from))
	})
}

// aims says whether the fault has one of the names as its target, or breaks its
// streams.
func aims(f history.Fault, names ...string) bool {
	return slices.ContainsFunc(names, func(n string) bool {
		return n != "" && (slices.Contains(f.Target, n) || slices.Contains(f.Breaks, n))
	})
}

// kinds is one of them.
func kinds(of ...history.Kind) func(history.Fault) bool {
	return func(f history.Fault) bool { return slices.Contains(of, f.Kind) }
}

// quantile is 0 of nothing.
func quantile(all []time.Duration, q float64) time.Duration {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[min(len(all)-1, int(q*float64(len(all))))]
}
