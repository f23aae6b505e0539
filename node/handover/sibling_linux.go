package handover

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// start starts the heir, and returns what waits for its end and tells how it ended.
//
// A supervisor waits for its own children alone: systemd kills a service the moment it
// is to stop, if its main process is another's child. So where there is a supervisor
// the heir is born as its child, beside this process.
func start(p Program, files []uintptr) (*os.Process, func() string, error) {
	if !siblings() {
		return child(p, files, nil)
	}
	fd := -1
	process, _, err := child(p, files, &syscall.SysProcAttr{Cloneflags: unix.CLONE_PARENT, PidFD: &fd})
	return process, func() string { return awaitSibling(fd) }, err
}

// siblings tells whether there is a supervisor, and can be one: the first process of a
// container has no parent to share, and old kernels cannot tell of a sibling's end.
func siblings() bool {
	if os.Getenv("NOTIFY_SOCKET") == "" || os.Getpid() == 1 {
		return false
	}
	fd, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		return false
	}
	_ = unix.Close(fd)
	return true
}

// awaitSibling returns when the process behind a descriptor has ended, and closes it.
func awaitSibling(fd int) string {
	defer func() { _ = unix.Close(fd) }()
	for {
		_, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1)
		if !errors.Is(err, unix.EINTR) {
			return "its supervisor knows how"
		}
	}
}
