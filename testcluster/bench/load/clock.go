package load

import "time"

// Clock counts nanoseconds from one moment. Backend and generator share one,
// so that a time written by the one can be compared by the other.
type Clock struct{ origin time.Time }

// NewClock starts counting now.
func NewClock() Clock { return Clock{origin: time.Now()} }

func (c Clock) now() int64 { return int64(time.Since(c.origin)) }
