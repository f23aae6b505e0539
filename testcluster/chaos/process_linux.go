package chaos

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// child is one process of a node: the one that is it, or an elder, which carries
// what it had begun before another became the node.
type child struct {
	name    string // the node's
	dir     string
	process *os.Process
	obeys   bool          // it takes commands
	elder   *child        // that was the node before it; nil: none
	still   atomic.Bool   // it was told to stand still
	died    chan struct{} // closed when it has ended
}

// each does something to the process, and to its elders.
func (c *child) each(do func(*child)) {
	for ; c != nil; c = c.elder {
		do(c)
	}
}

func (c *child) signal(s syscall.Signal) error {
	if err := c.process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("signal %s: %w", c.name, err)
	}
	return nil
}

// kill ends a node as the death of its machine does, with all its processes.
func (c *child) kill() {
	c.each(func(c *child) { _ = c.process.Kill() }) // fails only where there is none
}

func (c *child) freeze(on bool) (err error) {
	s := syscall.SIGCONT
	if on {
		s = syscall.SIGSTOP
	}
	c.still.Store(on)
	c.each(func(c *child) { err = errors.Join(err, c.signal(s)) })
	return err
}

// adopt finds a process that became the node a child was. It is no child of this
// one, so it is awaited by other means.
func adopt(c *child, pid int) (heir *child, await func(), err error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("process %d of %s: %w", pid, c.name, err)
	}
	process, err := os.FindProcess(pid)
	if err == nil {
		err = os.WriteFile(filepath.Join(c.dir, fmt.Sprint(heirPrefix, pid)), nil, 0o600)
	}
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("process %d of %s: %w", pid, c.name, err), unix.Close(fd))
	}
	await = func() {
		defer unix.Close(fd)
		for {
			if _, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1); !errors.Is(err, unix.EINTR) {
				return
			}
		}
	}
	return &child{name: c.name, dir: c.dir, process: process, obeys: true, elder: c, died: make(chan struct{})}, await, nil
}

// heirPrefix begins the names of files, in the run's directory, that name the
// processes which the kernel does not end with the harness.
const heirPrefix = "heir-"

// endHeirs ends those that are left; one that stands still does not end by itself.
func endHeirs(dir string) {
	names, _ := filepath.Glob(filepath.Join(dir, heirPrefix+"*")) // the pattern is good
	for _, name := range names {
		var pid int
		if _, err := fmt.Sscanf(filepath.Base(name), heirPrefix+"%d", &pid); err != nil {
			continue
		}
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err == nil && strings.Contains(string(line), dir) { // and no other that has its number by now
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

const answerTime = 5 * time.Second

// tell has a process do something; see obey.
func (c *child) tell(command string) error {
	if !c.obeys {
		return fmt.Errorf("a node of another program: %w", ErrLevel)
	}
	answer, err := say(c.dir, c.name, c.process.Pid, command)
	if err == nil && answer != "" {
		return errors.New(answer)
	}
	if err == nil {
		return nil
	}
	select {
	case <-c.died:
		return nil // what it was to do is no matter any more
	case <-time.After(time.Second): // a death shows here first
		return fmt.Errorf("tell %s: %w", c.name, err)
	}
}

// say says a command to a process of a node, and returns its answer; empty: it was
// done.
func say(dir, name string, pid int, command string) (answer string, err error) {
	path, done, err := commandSocket(dir, name, pid)
	if err != nil {
		return "", err
	}
	defer done()
	conn, err := net.DialTimeout("unix", path, answerTime)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(answerTime)); err != nil {
		return "", err
	}
	if _, err := fmt.Fprintln(conn, command); err != nil {
		return "", err
	}
	answer, err = bufio.NewReader(conn).ReadString('\n')
	return strings.TrimSpace(answer), err
}

// commandSocket is where a process hears commands, by a name that is short enough
// for a socket, however long that of the directory.
func commandSocket(dir, name string, pid int) (path string, done func(), err error) {
	d, err := os.Open(dir)
	if err != nil {
		return "", nil, err
	}
	return fmt.Sprintf("/proc/self/fd/%d/%s.%d", d.Fd(), name, pid), func() { _ = d.Close() }, nil
}

// programOf is the path that a node's program is called by, so that another can be
// put there.
func programOf(dir, name string) string { return filepath.Join(dir, name+".program") }

// putOld has a node's path lead to a program.
func putOld(dir, name, program string) error {
	path, err := exec.LookPath(program)
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err == nil {
		err = replace(programOf(dir, name), func(fresh string) error { return os.Symlink(path, fresh) })
	}
	if err != nil {
		return fmt.Errorf("older program of %s: %w", name, err)
	}
	return nil
}

// putNew has it lead to this program. The process before calls it with the arguments
// that it was called with itself: those by which starling serves a file.
func putNew(dir, name string, args []string) error {
	var quoted []string
	for _, a := range args {
		quoted = append(quoted, "'"+strings.ReplaceAll(a, "'", `'\''`)+"'")
	}
	text := "#!/bin/sh\nexec " + strings.Join(quoted, " ") + "\n"
	err := replace(programOf(dir, name), func(fresh string) error { return os.WriteFile(fresh, []byte(text), 0o700) })
	if err != nil {
		return fmt.Errorf("program of %s: %w", name, err)
	}
	return nil
}

// replace puts a file in another's place at once.
func replace(path string, write func(fresh string) error) error {
	fresh := path + ".new"
	if err := os.Remove(fresh); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := write(fresh); err != nil {
		return err
	}
	return os.Rename(fresh, path)
}
