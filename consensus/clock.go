package consensus

import "time"

// Now is the time since the machine's start, also while it was suspended: what
// leases and proofs are counted by.
func Now() time.Duration { return now() }
