package backend

import "time"

// Event is a change of a backend's state, or of a whole pool's: then Backend is
// empty, and Panic says whether a panic began or ended.
type Event struct {
	At       time.Time
	Pool     string
	Backend  string
	From, To State // equal where an ejection went on, or a drain was over
	Panic    bool
	Reason   string
}

// tell hands an event to whom it may concern; mu is held.
func (p *Pool) tell(e Event) {
	if p.hooks.Told != nil {
		p.hooks.Told(e)
	}
}
