package backend

import (
	"cmp"
	"fmt"
	"slices"
)

// Verdict is what the health checks of all nodes say of a backend. The zero
// Verdict is that of one that was never checked: it may be used until the first
// failures.
type Verdict struct {
	Down     bool
	NotReady bool   // alive, and wants no streams yet
	Slow     bool   // alive, and slower than it should be
	Reason   string // of Down, else of NotReady
}

// Witness is one node's word on a backend.
type Witness struct {
	Node  string
	Looks []Look
	Heard int64 // when a byte came from it last, in ns since 1970; 0: never
}

// Case is all that a verdict is made of: who has the same reports comes to the
// same verdict, whatever their order.
type Case struct {
	Witnesses  []Witness
	Alive      int // nodes that check the backend and live; 0 and 1: one is enough to call it down
	Rise, Fall int // looks in a row that bring it up and down
	Before     Verdict
}

// slowAt looks too many that were slow, those that were fast taken off, make a
// backend slow; slowMost bounds how long it takes to live that down.
const (
	slowAt   = 2
	slowMost = 4
)

// Judge comes to the verdict. Looks count by when they were made, whoever made
// them: in a row means in the row of all. A row of failures must come from two
// nodes, where there are two: one alone may have lost its own network.
func (c Case) Judge() Verdict {
	looks := c.evidence()
	fails, reporters, why := failing(looks)
	alive, ready := passing(looks)
	v := Verdict{Down: c.Before.Down, NotReady: c.Before.NotReady, Slow: slow(looks)}
	switch {
	case fails >= max(1, c.Fall) && reporters >= min(2, max(1, c.Alive)):
		v.Down = true
	case alive >= max(1, c.Rise):
		v.Down = false
	}
	if last := len(looks) - 1; last >= 0 && looks[last].Finding == LookNotReady {
		v.NotReady, why = true, looks[last].Why // its own word
	} else if ready >= max(1, c.Rise) {
		v.NotReady = false
	}
	switch {
	case v.Down && c.Before.Down, !v.Down && !c.Before.Down && v.NotReady && c.Before.NotReady:
		v.Reason = c.Before.Reason // why it began
	case v.Down:
		v.Reason = fmt.Sprintf("%d health checks failed in a row, the last: %s", fails, cmp.Or(why, "as another node saw it"))
	case v.NotReady:
		v.Reason = cmp.Or(why, "not ready, as another node saw it")
	}
	return v
}

// sworn is a look and who made it.
type sworn struct {
	Look
	node string
}

// evidence is the looks that count, oldest first. One that timed out does not,
// while any node has heard from the backend since it began: busy is not dead.
func (c Case) evidence() (list []sworn) {
	heard := int64(0)
	for _, w := range c.Witnesses {
		heard = max(heard, w.Heard)
	}
	for _, w := range c.Witnesses {
		for _, l := range w.Looks {
			if !l.TimedOut || heard < l.At.Add(-l.Took).UnixNano() {
				list = append(list, sworn{l, w.Node})
			}
		}
	}
	slices.SortFunc(list, func(a, b sworn) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.node, b.node), cmp.Compare(a.Took, b.Took), cmp.Compare(a.Finding, b.Finding), cmp.Compare(a.Why, b.Why))
	})
	return list
}

// failing counts the failures at the end of the row, and who reported them.
func failing(looks []sworn) (n, reporters int, why string) {
	from := map[string]bool{}
	for _, l := range slices.Backward(looks) {
		if l.Finding != LookFail {
			break
		}
		n++
		from[l.node] = true
		why = cmp.Or(why, l.Why)
	}
	return n, len(from), why
}

// passing counts the looks at the end of the row that found the backend alive,
// and at the end of these those that found it ready.
func passing(looks []sworn) (alive, ready int) {
	waits := false
	for _, l := range slices.Backward(looks) {
		if l.Finding == LookFail {
			break
		}
		alive++
		if waits = waits || l.Finding == LookNotReady; !waits {
			ready++
		}
	}
	return alive, ready
}

// slow counts slow looks up and fast ones down.
func slow(looks []sworn) bool {
	n := 0
	for _, l := range looks {
		switch l.Finding {
		case LookSlow:
			n = min(slowMost, n+1)
		case LookOK:
			n = max(0, n-1)
		}
	}
	return n >= slowAt
}
