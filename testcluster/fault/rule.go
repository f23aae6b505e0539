package fault

import "time"

// Any is the label of all connections whose own label has no rule.
const Any = "*"

// Rule is what happens to the connections of one label; the zero Rule is a good
// network. A change holds from the next byte on, also on open connections.
type Rule struct {
	// Refuse lets dials fail as on a closed port. A listener cannot do that
	// while it is open: there the connection is made and reset at once.
	Refuse      bool
	Read, Write Way
}

// Way is what happens in one direction. All of it may be combined.
type Way struct {
	// Delay is how much later every piece arrives, in order. Writes go on at
	// once. A piece that came while an earlier one was held may be up to twice
	// as late when read. A dial takes the delays of both ways, as a handshake.
	Delay time.Duration

	// Rate is in bytes per second; 0 is no limit.
	Rate int

	// Stall lets nothing pass and loses nothing: what was held goes on when it
	// is lifted. Writes block, dials wait.
	Stall bool

	// Hold is Stall for what is written, but that writes go on until a megabyte is
	// under way: a way that is cut, with the sender's socket buffer before it.
	Hold bool

	// Drop swallows: writes succeed and reach nobody, reads wait, the peer's
	// end is not seen, dials wait. What was swallowed is gone, so a stream that
	// was in use has a hole after it; Stall is the kind fault.
	Drop bool

	// CutAfter ends the connection after so many bytes in this direction,
	// counted from when the rule was set or the connection opened; 0 is never.
	// Both ends see an end of stream, or with Reset a reset.
	CutAfter int64
	Reset    bool
}

// dark says that a handshake would not come through.
func (r Rule) dark() bool {
	return r.Read.Drop || r.Read.Stall || r.Write.Drop || r.Write.Stall || r.Write.Hold
}

// setting is a rule in force; a change makes a new one.
type setting struct {
	Rule
	changed chan struct{} // closed when this is no longer in force
}

func newSetting(r Rule) *setting { return &setting{Rule: r, changed: make(chan struct{})} }
