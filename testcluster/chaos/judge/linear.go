package judge

import (
	"cmp"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// asked is an answer of a shard's leader: to a read, or to a turn that asked it.
type asked struct {
	bind    bool // it bound a session that had no binding
	unsure  bool // of a state: what was before is not looked at
	epoch   uint64
	backend string
}

// register is a session's binding on one machine: a backend and an epoch that only
// grows. Moves and letting go are nobody's question, so it may grow between any
// two answers; a bind finds it empty.
func register(unsure bool) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return asked{unsure: unsure} },
		Step: func(state, _, output any) (bool, any) {
			is, a := state.(asked), output.(asked)
			next := asked{epoch: a.epoch, backend: a.backend}
			switch {
			case is.unsure:
				return true, next
			case a.bind:
				return is.epoch == 0 && a.epoch > 0, next
			case a.epoch == is.epoch:
				return a.backend == is.backend, is
			}
			return a.epoch > is.epoch, next
		},
	}
}

const (
	stretch   = 400 // answers of a session that are looked at together: the search grows fast
	checkTime = 2 * time.Second
)

// linear holds each session's answers of leaders to the register. What nodes say by
// their caches, as a lease allows, is P1's.
func linear(t *trial, f *finding) {
	ops, undecided := 0, 0
	for _, session := range t.sessions() {
		all := t.answers(session)
		ops += len(all)
		for part := range slices.Chunk(all, stretch) {
			last := part[len(part)-1]
			switch porcupine.CheckOperationsTimeout(register(&part[0] != &all[0]), part, checkTime) {
			case porcupine.Illegal:
				a := last.Output.(asked)
				f.breach(where{at: t.Began.Add(time.Duration(last.Return)), session: session}, "%d answers about session %s, to the last one of %s at epoch %d, are no single machine's", len(part), session, a.backend, a.epoch)
			case porcupine.Unknown:
				undecided++
			}
		}
	}
	f.looked(ops)
	f.number("%d answers of leaders, %d sessions too tangled to decide", ops, undecided)
}

// answers are what leaders said of a session, by when they were asked. A read that
// found nothing is one, too.
func (t *trial) answers(session string) (all []porcupine.Operation) {
	add := func(a asked, from, to time.Time) {
		all = append(all, porcupine.Operation{ClientId: len(all), Input: session, Output: a, Call: int64(from.Sub(t.Began)), Return: int64(to.Sub(t.Began))})
	}
	for _, s := range t.said[session] {
		switch {
		case s.epoch == 0:
		case s.lookup == "read":
			add(asked{epoch: s.epoch, backend: s.backend}, s.from, s.to)
		case s.lookup == "new":
			add(asked{bind: true, epoch: s.epoch, backend: s.backend}, s.from, s.to)
		}
	}
	for _, r := range t.none[session] {
		add(asked{}, r.Began, r.Ended)
	}
	slices.SortStableFunc(all, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	return all
}
