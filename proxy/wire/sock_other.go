//go:build !linux

package wire

import (
	"net"
	"time"
)

// Quick is for Linux; elsewhere listeners stay what they are.
func Quick(l net.Listener) net.Listener { return l }

// Bound is for Linux: elsewhere the kernel takes what it likes, and waits as it likes.
func Bound(net.Listener, time.Duration) {}
