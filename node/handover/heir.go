package handover

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// variable tells a process that it is an heir, by the descriptor of the socket pair.
const variable = "STARLING_HANDOVER"

const (
	talkFD  = 3 // in the heir
	lockFD  = 4 // the data directory's lock: both hold it
	firstFD = 5 // of the sockets
)

// Program is how this process was started, for another one to be.
type Program struct {
	Path string
	Args []string // with its own name
}

// Self finds it. The path is the one that was called, not the file behind it: an
// upgrade may be another one behind the same name.
func Self() (Program, error) {
	path, err := exec.LookPath(os.Args[0])
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return Program{}, fmt.Errorf("find the program that runs: %w", err)
	}
	return Program{Path: path, Args: os.Args}, nil
}

// Heir is the process that is to take over, as the one before it sees it.
type Heir struct {
	*talk
	Version string      // of its program, once it serves
	takes   bool        // an estate, too
	inner   *os.Process // that talks, where it is a descendant of the one that was started, which may end before it; nil: it is none
	process *os.Process
	wait    func() string // for its end, and tells how
	ended   chan struct{} // closed when the process has
	state   string        // how; after ended
}

// Start starts the heir, with a share of the lock and of the sockets.
func Start(p Program, lock *os.File, sockets []Socket) (*Heir, error) {
	pair, err := socketpair()
	if err != nil {
		return nil, fmt.Errorf("a socket pair for the new process: %w", err)
	}
	defer syscall.Close(pair[1])
	t, err := newTalk(pair[0])
	if err != nil {
		return nil, err
	}
	files := []uintptr{0, 1, 2, uintptr(pair[1]), lock.Fd()} // raw: package os would make sockets wait in accept for all of us
	for _, s := range sockets {
		files = append(files, uintptr(s.fd))
	}
	process, wait, err := start(p, files)
	if err != nil {
		t.close()
		return nil, fmt.Errorf("start %s: %w", p.Path, err)
	}
	h := &Heir{talk: t, process: process, wait: wait, ended: make(chan struct{})}
	go h.await() // ends with the process, which may outlive this one
	if err := t.say(word{Word: wordOffer, Version: version, Sockets: sockets}); err != nil {
		return nil, h.Undo(err)
	}
	return h, nil
}

// child starts it as this process's, unless how says otherwise.
func child(p Program, files []uintptr, how *syscall.SysProcAttr) (*os.Process, func() string, error) {
	environment := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, variable+"=") })
	pid, _, err := syscall.StartProcess(p.Path, p.Args, &syscall.ProcAttr{
		Env: append(environment, fmt.Sprintf("%s=%d", variable, talkFD)), Files: files, Sys: how,
	})
	if err != nil {
		return nil, nil, err
	}
	process, err := os.FindProcess(pid)
	return process, func() string {
		state, err := process.Wait()
		if err != nil {
			return err.Error()
		}
		return state.String()
	}, err
}

func socketpair() (pair [2]int, err error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if pair, err = syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0); err != nil {
		return pair, os.NewSyscallError("socketpair", err)
	}
	for _, fd := range pair {
		syscall.CloseOnExec(fd)
	}
	return pair, nil
}

func (h *Heir) await() {
	defer close(h.ended)
	h.state = h.wait()
}

// PID is the process's that talks: behind a script it is another one than was started.
func (h *Heir) PID() int {
	if h.inner != nil {
		return h.inner.Pid
	}
	return h.process.Pid
}

// Ended is closed when the process has ended.
func (h *Heir) Ended() <-chan struct{} { return h.ended }

// End tells the process, which is the node by now, to end when it has drained.
func (h *Heir) End() { h.signal(syscall.SIGTERM) }

// Reload tells it to read its configuration again.
func (h *Heir) Reload() { h.signal(syscall.SIGHUP) }

// signal tells the process that talks something, by a handle where the system has
// them: it may have ended long since, and another one have its number.
func (h *Heir) signal(s syscall.Signal) {
	if h.inner != nil {
		_ = h.inner.Signal(s)
		return
	}
	select {
	case <-h.ended:
	default:
		_ = h.process.Signal(s)
	}
}

// AwaitTake returns when the heir could begin.
func (h *Heir) AwaitTake(ctx context.Context) error {
	w, err := h.hear(ctx, wordTake)
	h.takes = w.Takes
	if err == nil && w.PID != h.process.Pid {
		h.inner = descendant(w.PID, h.process.Pid)
	}
	return err
}

// AwaitReady returns when it serves.
func (h *Heir) AwaitReady(ctx context.Context) error {
	w, err := h.hear(ctx, wordReady)
	h.Version = w.Program
	return err
}

// Yours says that the directory is the heir's. estate is what else it gets, as JSON
// and no longer than MaxEstate; an older program does not read it, and gets none.
func (h *Heir) Yours(estate []byte) error {
	if !h.takes {
		estate = nil
	}
	return h.say(word{Word: wordYours, Estate: estate})
}

// Go says that the node is, too. From here on there is no way back, unless it could
// not be said: who has not heard it takes nobody in.
func (h *Heir) Go() error {
	err := h.say(word{Word: wordGo})
	if err == nil {
		h.close()
	}
	return err
}

// maxDepth is how many processes may stand between what was started and who talks.
const maxDepth = 8

// descendant is a handle on the process pid, nil where it does not descend from another.
func descendant(pid, from int) *os.Process {
	p, err := os.FindProcess(pid)
	if err != nil || !descends(pid, from) { // asked second: then the handle is on that one
		return nil
	}
	return p
}

// descends tells whether a process is another one's child, or a child's child. It is
// only known where there is a /proc.
func descends(pid, from int) bool {
	for range maxDepth {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		_, rest, _ := strings.Cut(string(text[bytes.LastIndexByte(text, ')')+1:]), " ") // its name may hold anything
		if _, bad := fmt.Sscanf(rest, "%1s %d", new(string), &pid); err != nil || bad != nil || pid <= 1 {
			return false
		}
		if pid == from {
			return true
		}
	}
	return false
}

// lastTime is for a process that has left the talk to end by itself, and for one that
// was told that all is undone.
const lastTime = time.Second

// Undo ends the heir, and adds to the cause how it ended. Whatever of it lives on, as
// what a script has started, hears that it is nobody: it would take the end of the talk
// for this process's.
func (h *Heir) Undo(cause error) error {
	if errors.Is(cause, ErrGone) {
		select {
		case <-h.ended: // and how says why
		case <-time.After(lastTime):
		}
	}
	_ = h.process.Kill() // one that has ended needs none
	if h.inner != nil {
		_ = h.inner.Kill()
	}
	_ = h.say(word{Word: wordUndone})
	h.awaitSilence()
	h.close()
	<-h.ended
	if errors.Is(cause, ErrGone) {
		return fmt.Errorf("the new process ended before it served (%s); its log says why", h.state)
	}
	return cause
}

// awaitSilence returns when nobody holds the other end of the talk any more, or a little
// later.
func (h *Heir) awaitSilence() {
	_ = h.conn.SetReadDeadline(time.Now().Add(lastTime))
	_, _ = io.Copy(io.Discard, h.in)
}
