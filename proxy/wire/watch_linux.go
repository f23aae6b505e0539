package wire

import (
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Watcher notices peers that close: one epoll instance and one goroutine for
// all connections of a node, at no cost per request. The epoll descriptor
// itself waits in Go's poller, so no thread is blocked.
type Watcher struct {
	slots slots
	epfd  int
	file  *os.File
	tasks sync.WaitGroup
}

// NewWatcher starts a watcher; Stop ends it.
func NewWatcher() (*Watcher, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll instance for the disconnect watcher: %w", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("epoll instance for the disconnect watcher: %w", err)
	}
	w := &Watcher{epfd: fd, file: os.NewFile(uintptr(fd), "disconnect watcher")}
	raw, err := w.file.SyscallConn()
	if err != nil {
		_ = w.file.Close()
		return nil, fmt.Errorf("epoll instance for the disconnect watcher: %w", err)
	}
	w.tasks.Go(func() { w.watchLoop(raw) })
	return w, nil
}

// Stop ends the watch; nobody is told any more.
func (w *Watcher) Stop() {
	_ = w.file.Close()
	w.tasks.Wait()
}

func (w *Watcher) watchLoop(raw syscall.RawConn) {
	events := make([]unix.EpollEvent, 128)
	for {
		n := 0
		err := raw.Read(func(fd uintptr) bool {
			n, _ = unix.EpollWait(int(fd), events, 0)
			return n > 0
		})
		if err != nil {
			return
		}
		for i := range events[:n] {
			t := ticket(uint32(events[i].Fd)) | ticket(uint32(events[i].Pad))<<32
			if c := w.slots.take(t); c != nil {
				c.left()
			}
		}
	}
}

// add watches a connection that has a descriptor; 0 where it has none.
func (w *Watcher) add(nc net.Conn, who watched) ticket {
	raw := descriptor(nc)
	if raw == nil {
		return 0
	}
	t := w.slots.put(who)
	event := unix.EpollEvent{Events: unix.EPOLLRDHUP | unix.EPOLLET, Fd: int32(uint32(t)), Pad: int32(uint32(t >> 32))}
	var failed error
	err := raw.Control(func(fd uintptr) { failed = unix.EpollCtl(w.epfd, unix.EPOLL_CTL_ADD, int(fd), &event) })
	if err != nil || failed != nil {
		w.slots.drop(t)
		return 0
	}
	return t
}

// remove forgets a connection that is about to be closed, which also takes it
// out of the epoll instance.
func (w *Watcher) remove(t ticket) { w.slots.drop(t) }

// descriptor finds the socket under a connection. Only TLS is looked through:
// another wrapper may have put something between the socket and what is read.
func descriptor(nc net.Conn) syscall.RawConn {
	if t, ok := nc.(*tls.Conn); ok {
		nc = t.NetConn()
	}
	if t, ok := nc.(*net.TCPConn); ok {
		if raw, err := t.SyscallConn(); err == nil {
			return raw
		}
	}
	return nil
}
