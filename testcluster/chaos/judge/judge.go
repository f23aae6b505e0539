// Package judge holds a run to what was promised. It looks at histories alone: at
// what clients and backends saw, and at what nodes said of themselves; so a
// promise is not found kept because the node that broke it says so.
//
// A checker takes what was done to the cluster into account only as the promise
// itself does: a stream may break where its own node or backend was hurt, a node
// that was cut off may go by what it last knew. What was excused is counted.
package judge

import (
	"fmt"
	"time"

	"github.com/starling-lb/starling/testcluster/chaos/history"
)

// Verdicts that are about no numbered promise.
const (
	Leaders  = "leaders"
	Replicas = "replicas"
	Views    = "views"
	Linear   = "linear"
	Recover  = "recover"
	Kill     = "kill"
	Upgrade  = "upgrade"
	States   = "states"
	Voters   = "voters"
	Data     = "data"
)

// rule is one promise and who looks after it.
type rule struct {
	promise, words string
	check          func(*trial, *finding)
}

func rules() []rule {
	return []rule{
		{"P1", "every node sends a session to the same backend; epochs only grow", agree},
		{"P2", "a committed binding survives", keep},
		{"P3", "a session's streams run at one backend at a time", oneAtATime},
		{"P4", "nobody is refused for lack of quorum; guesses agree, and are agreed on later", quorum},
		{"P5", "a session moves only off a backend that is hurt, and once", stay},
		{"P6", "only the death of its own node or backend cuts a stream", uncut},
		{"P7", "a broken stream looks broken; what a backend may have begun is not sent again", ending},
		{"P8", "a client that leaves frees its backend", letGo},
		{"P9", "counts are exact, and zero when nothing runs", counts},
		{"P10", "goroutines, descriptors, memory and disk are bounded", bounded},
		{"P11", "what cannot be served is told at once; goodput does not fall", shed},
		{"P12", "one cluster, and nobody else's", closed},
		{Leaders, "at most one leader of a shard in a term", reigns},
		{Replicas, "each shard has its replicas, all alike", replicas},
		{Views, "all nodes see the same members and the same sick backends", views},
		{Linear, "what leaders say of a session could be said by one machine", linear},
		{Recover, "after the last fault all is well in time", recovered},
		{Kill, "after a node's death its turns are served elsewhere within a second", killed},
		{Upgrade, "while another process becomes a node, who comes in is served, and no session moves", handedOver},
		{States, "replicas that have applied the same entries are alike", alike},
		{Voters, "no shard has two majorities, and no voter that is well goes before another has its vote", voters},
		{Data, "a data directory is one process's", once},
	}
}

// Judge gives a verdict for each promise, always all of them and in one order.
func Judge(run *history.Run) []history.Verdict {
	t := newTrial(run)
	var all []history.Verdict
	for _, r := range rules() {
		f := finding{t: t}
		r.check(t, &f)
		all = append(all, history.Verdict{Promise: r.promise, Words: r.words, Held: f.breaches == 0, Numbers: f.text(), Story: f.story})
	}
	return all
}

// Held tells whether all promises were.
func Held(all []history.Verdict) bool {
	for _, v := range all {
		if !v.Held {
			return false
		}
	}
	return true
}

// finding is what a checker has to say.
type finding struct {
	t        *trial
	numbers  []string
	seen     int // of what it is about
	breaches int
	story    []string // of the first breach
}

// looked says how much there was of what the verdict is about: one that had nothing
// to look at holds, and says so.
func (f *finding) looked(n int) { f.seen += n }

// number is something that was looked at.
func (f *finding) number(format string, args ...any) {
	f.numbers = append(f.numbers, fmt.Sprintf(format, args...))
}

// breach is one; where and whose say what belongs to its story.
func (f *finding) breach(w where, format string, args ...any) {
	f.breaches++
	if f.story == nil {
		f.story = f.t.story(w, fmt.Sprintf(format, args...))
	}
}

func (f *finding) text() string {
	s := ""
	switch {
	case f.breaches > 0:
		s = fmt.Sprintf("broken %d times; ", f.breaches)
	case f.seen == 0:
		s = "nothing to look at; "
	}
	for i, n := range f.numbers {
		if i > 0 {
			s += ", "
		}
		s += n
	}
	return s
}

// where is a place in a run: a time, and who is concerned.
type where struct {
	at      time.Time
	session string
	turns   []string // ids; none: the session's about that time
	node    string
}
