//go:build !linux

package consensus

import "time"

// now is wall time here: it counts while the machine is suspended, and a jump of
// the clock costs an election at worst.
func now() time.Duration { return time.Duration(time.Now().UnixNano()) }
