//go:build !linux

package wire

import "time"

const (
	patience      = time.Second
	firstPatience = patience
)

func (r *Relay) detachable() bool { return false }

// Detach is for Linux; Run never returns ErrDetached elsewhere.
func (r *Relay) Detach() { panic("BUG: no events on this system") }
