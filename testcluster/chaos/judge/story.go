package judge

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/starling-lb/starling/testcluster/chaos/history"
)

const (
	storyTurns  = 8 // about the breach
	storyFaults = 6
	storyReach  = 20 * time.Second // a fault that ended longer before is none of the story
)

// event is one line of a story.
type event struct {
	at   time.Time
	text string
}

// story is what happened, and then what of it breaks the promise.
func (t *trial) story(w where, what string) []string {
	var events []event
	for _, f := range t.near(w) {
		events = append(events, event{f.Began, "fault begins: " + describe(f)})
		if !f.Ended.IsZero() && !f.Ended.After(w.at) {
			events = append(events, event{f.Ended, fmt.Sprintf("fault ends: %s on %s", f.Kind, strings.Join(f.Target, " "))})
		}
	}
	for _, turn := range t.concerned(w) {
		events = append(events, event{turn.Began, t.tell(turn)})
	}
	slices.SortStableFunc(events, func(a, b event) int { return a.at.Compare(b.at) })
	var lines []string
	for _, e := range events {
		lines = append(lines, t.stamp(e.at)+" "+e.text)
	}
	if !w.at.IsZero() {
		what = t.stamp(w.at) + " " + what
	}
	return append(lines, what)
}

func (t *trial) stamp(at time.Time) string { return fmt.Sprintf("%+9.3fs", at.Sub(t.Began).Seconds()) }

func describe(f history.Fault) string {
	text := fmt.Sprintf("%s on %s", f.Kind, strings.Join(f.Target, " "))
	if f.Detail != "" {
		text += ": " + f.Detail
	}
	return text
}

// near are the last faults before the breach.
func (t *trial) near(w where) []history.Fault {
	var near []history.Fault
	for _, f := range t.Faults {
		if w.at.IsZero() || !f.Began.After(w.at) && (f.Ended.IsZero() || f.Ended.Add(storyReach).After(w.at)) {
			near = append(near, f)
		}
	}
	return near[max(0, len(near)-storyFaults):]
}

// concerned are the turns that are named, or else the session's last ones up to
// the breach.
func (t *trial) concerned(w where) []*history.Turn {
	var turns []*history.Turn
	for _, id := range w.turns {
		if turn := t.turns[id]; turn != nil {
			turns = append(turns, turn)
		}
	}
	if len(turns) > 0 || w.session == "" {
		return turns
	}
	for i := range t.Turns {
		if turn := &t.Turns[i]; turn.Session == w.session && (w.at.IsZero() || !turn.Began.After(w.at)) {
			turns = append(turns, turn)
		}
	}
	slices.SortStableFunc(turns, func(a, b *history.Turn) int { return a.Began.Compare(b.Began) })
	return turns[max(0, len(turns)-storyTurns):]
}

// tell is a turn in a line.
func (t *trial) tell(turn *history.Turn) string {
	at := turn.Backend
	if l, ok := t.lines[turn.ID]; ok {
		at = fmt.Sprintf("%s, epoch %d, %s", l.Backend, l.Epoch, l.Lookup)
	}
	text := fmt.Sprintf("turn %s (%s) by %s at %s: %s after %.3fs", turn.ID, turn.Kind, turn.Node, at, turn.End, turn.Ended.Sub(turn.Began).Seconds())
	if turn.Note != "" {
		text += ", " + turn.Note
	}
	return text
}
