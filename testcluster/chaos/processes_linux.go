package chaos

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// processes are what nodes run on, each in one of its own.
type processes struct {
	dir     string
	program []string // that a node's file is the last argument of
	spawner *spawner
	sweeper *sweeper
	net     network
}

// network is what the processes reach each other by.
type network interface {
	places(i int) (places, error)
	open(m *member) error // a node begins
	shut(m *member)       // and has ended
	ways() ways
	end()
}

func newProcesses(o Options, dir string) (*processes, error) {
	g := &processes{dir: dir, program: o.Program, spawner: newSpawner()}
	var err error
	if g.sweeper, err = newSweeper(o.Program, dir); err != nil {
		g.spawner.end()
		return nil, err
	}
	if o.Level == Namespaces {
		g.net, err = newTables()
	} else {
		g.net, err = newRelays()
	}
	if err != nil {
		g.spawner.end()
		g.sweeper.end()
		return nil, err
	}
	return g, nil
}

func (g *processes) ways() ways                   { return g.net.ways() }
func (g *processes) places(i int) (places, error) { return g.net.places(i) }

func (g *processes) end() {
	g.net.end()
	g.spawner.end()
	g.sweeper.end()
}

// child is a node's process.
type child struct {
	cmd  *exec.Cmd
	name string
	died chan struct{}

	mu      sync.Mutex // one command at a time
	in      io.WriteCloser
	answers chan string // nil: it takes no commands
}

const beginTime = 30 * time.Second // for a process to serve

// begin runs a node's file by a program; none: that of this process.
func (g *processes) begin(ctx context.Context, m *member, program []string) (*body, error) {
	args := append(append([]string(nil), program...), m.file)
	if program == nil {
		args = append(append([]string(nil), g.program...), m.file, hostOf(m.at.gossip), strconv.Itoa(m.logs))
	}
	if err := g.net.open(m); err != nil {
		return nil, err
	}
	c, lines, err := g.run(m, args, program == nil)
	if err != nil {
		g.net.shut(m)
		return nil, err
	}
	select {
	case <-lines:
	case <-c.died:
		err = fmt.Errorf("%s ended before it served: %s", m.name, tail(filepath.Join(g.dir, m.name+".log")))
	case <-ctx.Done():
		err = fmt.Errorf("%s does not serve: %w", m.name, ctx.Err())
	case <-time.After(beginTime):
		err = fmt.Errorf("%s does not serve after %v", m.name, beginTime)
	}
	if err != nil {
		c.kill()
		<-c.died
		return nil, err
	}
	return &body{kill: c.kill, stop: c.stop, freeze: c.freeze, tell: c.tell, died: c.died}, nil
}

func hostOf(address string) string {
	host, _, _ := net.SplitHostPort(address)
	return host
}

// run starts the process; ready is closed when it says that it serves.
func (g *processes) run(m *member, args []string, commands bool) (c *child, ready <-chan struct{}, err error) {
	log, err := os.OpenFile(filepath.Join(g.dir, m.name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, nil, err
	}
	defer log.Close()
	c = &child{cmd: exec.Command(args[0], args[1:]...), name: m.name, died: make(chan struct{})}
	c.cmd.Stderr = log
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, nil, err
	}
	if commands {
		c.answers = make(chan string, 1)
	}
	if err := g.spawner.start(c.cmd); err != nil {
		return nil, nil, fmt.Errorf("run %s: %w", args[0], err)
	}
	serves := make(chan struct{})
	go func() {
		c.listen(out, serves)
		_ = c.cmd.Wait() // how it ended is no matter: some are killed
		g.net.shut(m)
		close(c.died)
	}()
	return c, serves, nil
}

// listen reads what the process says until it ends.
func (c *child) listen(out io.Reader, serves chan<- struct{}) {
	lines := bufio.NewScanner(out)
	ready := false
	for lines.Scan() {
		word, rest, _ := strings.Cut(lines.Text(), " ")
		switch {
		case word == "ready" && !ready:
			ready = true
			close(serves)
		case word == "done" && c.answers != nil:
			select {
			case c.answers <- rest:
			default: // nobody waits for it any more
			}
		}
	}
}

func (c *child) signal(s syscall.Signal) error {
	if err := c.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal %s: %w", c.name, err)
	}
	return nil
}

func (c *child) kill() { _ = c.cmd.Process.Kill() } // fails only where there is none

func (c *child) stop(ctx context.Context) error {
	if err := c.signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-c.died:
		return nil
	case <-ctx.Done():
		c.kill()
		return fmt.Errorf("%s does not end: %w", c.name, ctx.Err())
	}
}

const answerTime = 5 * time.Second

func (c *child) tell(command string) error {
	if c.answers == nil {
		return fmt.Errorf("a node of another program: %w", ErrLevel)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, err := fmt.Fprintln(c.in, command); err != nil {
		return fmt.Errorf("tell %s: %w", c.name, err)
	}
	select {
	case answer := <-c.answers:
		if answer != "" {
			return errors.New(answer)
		}
		return nil
	case <-c.died:
		return nil // what it was to do is no matter any more
	case <-time.After(answerTime):
		return fmt.Errorf("%s does not answer a command", c.name)
	}
}

// tail is the end of a file.
func tail(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(data[max(0, len(data)-2000):])
}

func (c *child) freeze(on bool) error {
	if on {
		return c.signal(syscall.SIGSTOP)
	}
	return c.signal(syscall.SIGCONT)
}
