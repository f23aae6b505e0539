//go:build !linux

package wire

import (
	"net"
	"time"
)

// edge is for Linux; elsewhere the plain loop reads.
type edge struct {
	pending []byte
	idle    time.Duration
	asked   error
}

func edgeFD(net.Conn) int32 { return -1 }

func (e *End) waiting() *edge { panic("BUG: no edge on this system") }

func (e *End) awaitEdge(taker) error { panic("BUG: no edge on this system") }

func (e *End) grab(int64) {}

func silent(int) bool { return true }

func sendNow(int, []byte) int { return 0 }

func sendBoth(int, []byte, []byte) int { return 0 }
