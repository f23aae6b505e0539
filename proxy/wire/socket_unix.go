//go:build unix

package wire

import (
	"errors"
	"net"
	"syscall"
)

// quiet tells whether an unused connection is still open with nothing to read:
// a backend that closed it, or that sends without being asked, is not to be
// used. It costs one system call.
func quiet(nc net.Conn) bool {
	t, ok := socket(nc).(syscall.Conn)
	if !ok {
		return true // found out by use
	}
	raw, err := t.SyscallConn()
	if err != nil {
		return false
	}
	open := false
	err = raw.Control(func(fd uintptr) {
		var b [1]byte
		_, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		open = errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EINTR)
	})
	return err == nil && open
}

func isReset(err error) bool {
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// DescriptorLimit is how many descriptors the process may have open.
func DescriptorLimit() int64 {
	var l syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l) != nil {
		return 1024
	}
	return int64(min(l.Cur, 1<<30))
}
