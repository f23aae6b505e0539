package chaos

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
)

// spawner starts processes that the kernel kills when this one dies. It does that
// when the thread that started them ends, so there is one that does nothing else.
type spawner struct {
	asks chan *exec.Cmd
	done chan error
	mu   sync.Mutex
	all  sync.WaitGroup
}

func newSpawner() *spawner {
	s := &spawner{asks: make(chan *exec.Cmd), done: make(chan error)}
	s.all.Go(func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with this
		for cmd := range s.asks {
			s.done <- cmd.Start()
		}
	})
	return s
}

// start runs a process, in a group of its own, so that ctrl-C is no business of it.
func (s *spawner) start(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	cmd.Env = slices.DeleteFunc(os.Environ(), supervised)
	return s.startAs(cmd)
}

// supervised tells whether a variable is a supervisor's word to this process: one that
// it starts would take sockets by it, or speak to the supervisor, as if it were meant.
func supervised(variable string) bool {
	name, _, _ := strings.Cut(variable, "=")
	return name == "NOTIFY_SOCKET" || strings.HasPrefix(name, "LISTEN_") || strings.HasPrefix(name, "WATCHDOG_")
}

// startAs runs a process as it says itself.
func (s *spawner) startAs(cmd *exec.Cmd) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asks <- cmd
	return <-s.done
}

func (s *spawner) end() {
	close(s.asks)
	s.all.Wait()
}

// sweeper is a process that removes a directory when this one is gone, or says so.
type sweeper struct {
	cmd *exec.Cmd
	in  io.WriteCloser
}

func newSweeper(program []string, dir string) (*sweeper, error) {
	args := append(append([]string(nil), program...), sweep, dir)
	s := &sweeper{cmd: exec.Command(args[0], args[1:]...)}
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var err error
	if s.in, err = s.cmd.StdinPipe(); err == nil {
		err = s.cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("process that tidies up: %w", err)
	}
	return s, nil
}

func (s *sweeper) end() {
	_ = s.in.Close()
	_ = s.cmd.Wait() // the directory is removed by its owner, too
}
