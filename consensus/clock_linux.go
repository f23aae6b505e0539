package consensus

import (
	"time"

	"golang.org/x/sys/unix"
)

// now counts also while the machine is suspended, which Go's monotonic clock
// does not: a leader that slept must know that its proofs are old.
func now() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		panic("BUG: CLOCK_BOOTTIME: " + err.Error())
	}
	return time.Duration(t.Nano())
}
