//go:build !linux

package wire

import "time"

// Unseen is for Linux, whose kernel tells what the peer's has acknowledged.
func (l *Link) Unseen(error, time.Duration) bool { return false }
