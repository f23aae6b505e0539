//go:build !linux

package wire

import "net"

// Quick is for Linux; elsewhere listeners stay what they are.
func Quick(l net.Listener) net.Listener { return l }
