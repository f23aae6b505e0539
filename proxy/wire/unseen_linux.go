package wire

import (
	"errors"
	"io"
	"time"

	"golang.org/x/sys/unix"
)

// Unseen tells whether the backend closed a kept link before the request that
// Send was given as a whole had reached it, so that it cannot have begun: err is
// how the exchange ended. It waits until limit for the proof, which is
//
//   - that the backend's FIN came, and not a reset instead, whose place may be in
//     front of an acknowledgement that was due;
//   - that a reset came behind it: what came later found nobody to read it;
//   - that no byte of the request is acknowledged. A FIN acknowledges all that
//     came before it: so this one was sent first.
//
// A backend that ends its own sending side first, goes on to read, and resets
// the connection before its kernel acknowledges what it has read, looks the
// same; it could not answer what it began.
func (l *Link) Unseen(err error, limit time.Duration) bool {
	if l.own < 0 || l.whole == 0 || !errors.Is(err, io.EOF) || !l.Stale(err) {
		return false
	}
	w, by := l.waiting(), bound{by: time.Now().Add(limit)}
	for l.arm(by) {
		ended := w.raw.Read(func(fd uintptr) bool { return isOver(int(fd)) })
		if ended == nil {
			return l.unacknowledged() >= l.whole // more: of the request before
		}
		if !l.woken(ended) {
			return false
		}
	}
	return false
}

// isOver tells whether nothing can come or go any more, which, without a close
// of ours, a reset does.
func isOver(fd int) bool {
	i, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	return err == nil && i.State == unix.BPF_TCP_CLOSE
}

// unacknowledged is how many bytes that were sent the peer's kernel is not known
// to have, once the peer's FIN and then its reset have come; else 0.
func (l *Link) unacknowledged() int {
	cause, err := unix.GetsockoptInt(int(l.own), unix.SOL_SOCKET, unix.SO_ERROR)
	if err != nil || unix.Errno(cause) != unix.EPIPE { // which is what a reset behind a FIN leaves
		return 0
	}
	n, err := unix.IoctlGetInt(int(l.own), unix.SIOCOUTQ)
	if err != nil {
		return 0
	}
	return n
}
