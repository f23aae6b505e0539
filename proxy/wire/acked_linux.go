package wire

import (
	"net"

	"golang.org/x/sys/unix"
)

// acknowledged is how many bytes of what was sent the peer's kernel has
// acknowledged. A connection that was closed before a request arrived answers
// it with a reset, and acknowledges nothing of it.
func acknowledged(nc net.Conn) (n int64, ok bool) {
	raw := descriptor(nc)
	if raw == nil {
		return 0, false
	}
	err := raw.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		if err == nil {
			n, ok = int64(info.Bytes_acked)-1, true // the kernel counts the SYN too
		}
	})
	return n, ok && err == nil
}
