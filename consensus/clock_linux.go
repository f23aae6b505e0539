package consensus

import (
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// now counts also while the machine is suspended, which Go's monotonic clock
// does not: a leader that slept must know that its proofs are old. The call never
// waits, so the scheduler need not know of it, which would be up to a third of its cost.
func now() time.Duration {
	var t unix.Timespec
	if _, _, err := unix.RawSyscall(unix.SYS_CLOCK_GETTIME, unix.CLOCK_BOOTTIME, uintptr(unsafe.Pointer(&t)), 0); err != 0 {
		panic("BUG: CLOCK_BOOTTIME: " + err.Error())
	}
	return time.Duration(t.Nano())
}
