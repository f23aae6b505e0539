package chaos

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/starling-lb/starling/node/api"
	"github.com/starling-lb/starling/node/client"
)

// processes are what nodes run on, each in one of its own, and while it is upgraded
// in several.
type processes struct {
	dir     string
	program []string // that runs RunNode with the arguments that follow
	spawner *spawner
	sweeper *sweeper
	net     network
	tasks   sync.WaitGroup

	mu  sync.Mutex        // guards what follows
	is  map[string]*child // by name: the process that is the node; nil: it hands over
	all []*child
	by  []pipes
}

// pipes are what a process, and those that follow it, end by and speak by.
type pipes struct{ in, out *os.File }

// network is what the processes reach each other by.
type network interface {
	places(i int) (places, error)
	open(m *member) error // a node begins
	shut(m *member)       // and has ended
	ways() ways
	end()
}

func newProcesses(o Options, dir string) (*processes, error) {
	g := &processes{dir: dir, program: o.Program, spawner: newSpawner(), is: map[string]*child{}}
	var err error
	if g.sweeper, err = newSweeper(o.Program, dir); err != nil {
		g.spawner.end()
		return nil, err
	}
	switch {
	case o.Level == Namespaces && o.relayed:
		g.net, err = newLayers()
	case o.Level == Namespaces:
		g.net, err = newTables()
	default:
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

const endTime = 5 * time.Second // for a process to end that is not known here

// end ends all processes. One that became a node, and of which nobody heard, ends by
// what it reads; where it does not it is waited for no longer.
func (g *processes) end() {
	g.mu.Lock()
	for _, c := range g.all { // elders may be left
		c.kill()
	}
	for _, p := range g.by {
		_, _ = p.in.Close(), p.out.SetReadDeadline(time.Now().Add(endTime)) // most are closed
	}
	g.mu.Unlock()
	g.tasks.Wait()
	g.net.end()
	g.spawner.end()
	g.sweeper.end()
}

const beginTime = 30 * time.Second // for a process to serve

// own are the arguments by which this process's program runs a node.
func (g *processes) own(m *member) []string {
	return append(append([]string(nil), g.program...), m.file, hostOf(m.at.gossip), strconv.Itoa(m.logs))
}

// begin runs a node's file by a program; none: that of this process.
func (g *processes) begin(ctx context.Context, m *member, program []string) (*body, error) {
	args := g.own(m)
	if program != nil {
		args = append(append([]string{programOf(g.dir, m.name)}, program[1:]...), m.file)
		if err := putOld(g.dir, m.name, program[0]); err != nil {
			return nil, err
		}
	}
	if err := g.net.open(m); err != nil {
		return nil, err
	}
	c, serves, err := g.run(m, args, program == nil)
	if err != nil {
		g.net.shut(m)
		return nil, err
	}
	select {
	case <-serves:
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
	return g.body(m, c), nil
}

func (g *processes) body(m *member, c *child) *body {
	return &body{
		kill: c.kill, freeze: c.freeze, tell: c.tell, died: c.died,
		stop:     func(ctx context.Context) error { return g.stop(ctx, c) },
		handOver: func(ctx context.Context) (*body, string, error) { return g.handOver(ctx, m, c) },
	}
}

func hostOf(address string) string {
	host, _, _ := net.SplitHostPort(address)
	return host
}

// run starts the process; serves is closed when it says that it does.
func (g *processes) run(m *member, args []string, obeys bool) (c *child, serves <-chan struct{}, err error) {
	log, err := os.OpenFile(filepath.Join(g.dir, m.name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, nil, err
	}
	defer log.Close()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stderr = log
	out, said, err := os.Pipe() // not by cmd: who takes the node over has them, too
	if err != nil {
		return nil, nil, err
	}
	defer said.Close()
	heard, in, err := os.Pipe()
	if err != nil {
		return nil, nil, errors.Join(err, out.Close())
	}
	defer heard.Close()
	cmd.Stdin, cmd.Stdout = heard, said
	if err := g.spawner.start(cmd); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("run %s: %w", args[0], err), out.Close(), in.Close())
	}
	c = &child{name: m.name, dir: g.dir, process: cmd.Process, obeys: obeys, died: make(chan struct{})}
	ready := make(chan struct{})
	g.mu.Lock()
	g.by = append(g.by, pipes{in, out})
	g.mu.Unlock()
	g.tasks.Go(func() {
		listen(out, ready)
		_, _ = in.Close(), out.Close() // nobody is left at the other ends
	})
	g.watch(m, c, func() { _ = cmd.Wait() }) // how it ended is no matter: some are killed
	return c, ready, nil
}

// watch notes a process as the node, and its end.
func (g *processes) watch(m *member, c *child, await func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.is[m.name] = c
	g.all = append(g.all, c)
	g.tasks.Go(func() {
		await()
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.is[m.name] == c {
			g.net.shut(m) // before anybody hears of the end, and starts another
		}
		close(c.died)
	})
}

// listen reads what a node's processes say until the last of them ends.
func listen(out *os.File, serves chan<- struct{}) {
	lines := bufio.NewScanner(out)
	ready := false
	for lines.Scan() {
		if word, _, _ := strings.Cut(lines.Text(), " "); word == "ready" && !ready {
			ready = true
			close(serves)
		}
	}
}

// stop has the process that is the node drain and end; its elders end by themselves.
func (g *processes) stop(ctx context.Context, c *child) error {
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

const (
	handTime  = 2 * time.Minute  // longer than a node tries
	doubtTime = 10 * time.Second // for who is the node to show, where nobody said so
)

// handOver has the node's process start this program, and hand the node over to it. It
// says in words how that went.
func (g *processes) handOver(ctx context.Context, m *member, c *child) (*body, string, error) {
	for c.still.Load() && pause(ctx, lookEvery) { // as late as it likes it would do what nobody waits for
	}
	if !c.obeys {
		if err := putNew(g.dir, m.name, g.own(m)); err != nil {
			return nil, "", err
		}
	}
	admin, err := client.New(m.at.admin, "")
	if err != nil {
		return nil, "", err
	}
	admin.Wait(handTime)
	g.handing(m, c, true)
	pid, words, err := ask(ctx, m, c, admin)
	if err != nil {
		g.handing(m, c, false)
		return nil, "", err
	}
	heir, await, err := adopt(c, pid)
	if err != nil {
		_ = syscall.Kill(pid, syscall.SIGKILL) // nobody could end it later
		g.handing(m, c, false)
		return nil, "", err
	}
	g.watch(m, heir, await)
	return g.body(m, heir), words, nil
}

// ask asks a node's process to hand it over, and says which process is the node then.
func ask(ctx context.Context, m *member, c *child, admin *client.Client) (pid int, words string, err error) {
	var got api.Upgraded
	var refused *client.RefusedError
	if err = admin.PostFor(ctx, &got, "upgrade"); err == nil {
		return got.PID, fmt.Sprintf("process %d is the node after %.2fs; who connected waited %.0f ms at most, %d streams go on in the one before", got.PID, got.Took, 1000*got.Waited, got.Streams), nil
	}
	if errors.As(err, &refused) {
		return 0, "", err
	}
	if pid = follower(ctx, m, c, admin); pid == 0 {
		return 0, "", err
	}
	return pid, fmt.Sprintf("process %d is the node after all; it was not told so: %v", pid, err), nil
}

// follower is the process that became a node though nobody said so: the answer may
// be lost, or the process that was to give it. 0: none did.
func follower(ctx context.Context, m *member, c *child, admin *client.Client) (pid int) {
	ctx, cancel := context.WithTimeout(ctx, doubtTime)
	defer cancel()
	for {
		var s api.Status
		one, done := context.WithTimeout(ctx, glanceTime)
		err := admin.Get(one, &s, "status")
		if done(); err == nil && s.Node.Name == m.name && s.Node.PID > 0 && s.Node.PID != c.process.Pid {
			return s.Node.PID
		}
		if !pause(ctx, lookEvery) {
			return 0
		}
	}
}

// handing says whether a process may end without its node's end; where it has not
// handed over, it is the node again, or the node has ended with it.
func (g *processes) handing(m *member, c *child, begins bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.is[m.name] = c; begins {
		g.is[m.name] = nil
		return
	}
	select {
	case <-c.died:
		g.net.shut(m)
	default:
	}
}

const twinTime = 20 * time.Second // for a second process to find out that it is one

// twin runs a second process of a node. It ends by itself, or is ended.
func (g *processes) twin(m *member) (served bool, words string, err error) {
	path := filepath.Join(g.dir, m.name+".twin.log")
	log, err := os.Create(path)
	if err != nil {
		return false, "", err
	}
	defer log.Close()
	args := g.own(m)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	in, err := cmd.StdinPipe() // open for as long as it runs
	if err != nil {
		return false, "", err
	}
	if err := g.spawner.start(cmd); err != nil {
		return false, "", errors.Join(err, in.Close())
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		return err == nil, strings.TrimSpace(lastLine(path)), nil
	case <-time.After(twinTime):
		_ = cmd.Process.Kill() // and if it ended just now, it was late
		<-ended
		return true, "", nil
	}
}

func lastLine(path string) string {
	text := strings.TrimSpace(tail(path))
	return text[strings.LastIndex(text, "\n")+1:]
}

// tail is the end of a file.
func tail(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(data[max(0, len(data)-2000):])
}
