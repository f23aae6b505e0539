package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const startTimeout = 10 * time.Second

// process is a proxy under test, in a process group of its own.
type process struct {
	cmd    *exec.Cmd
	at     netip.AddrPort
	output *output
	exited chan struct{}
}

// output keeps the begin of what a process prints; ready is closed at the
// first whole line that begins with "ready ".
type output struct {
	mu    sync.Mutex
	text  []byte
	line  string
	ready chan struct{}
}

const maxOutput = 16 << 10

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text = append(o.text, p[:min(len(p), maxOutput-len(o.text))]...)
	for l := range strings.Lines(string(o.text)) {
		if o.line == "" && strings.HasPrefix(l, "ready ") && strings.HasSuffix(l, "\n") {
			o.line = strings.TrimSpace(l)
			close(o.ready)
		}
	}
	return len(p), nil
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.TrimSpace(string(o.text))
}

// start runs a command pinned to one CPU. The calling goroutine must be locked
// to its thread, which is on loadCPU before and after.
func (b *bench) start(env []string, name string, args ...string) (*process, error) {
	p := &process{cmd: exec.Command(name, args...), output: &output{ready: make(chan struct{})}, exited: make(chan struct{})}
	p.cmd.Dir = b.dir
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stdout, p.cmd.Stderr = p.output, p.output
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := pinThread(0, b.proxyCPU); err != nil {
		return nil, err
	}
	err := p.cmd.Start()
	if back := pinThread(0, b.loadCPU); err == nil && back != nil {
		err = back
	}
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		_ = p.cmd.Wait() // it is killed in the end, so its status says nothing
		close(p.exited)
	}()
	return p, nil
}

// stop kills the group at once: nobody needs its last words.
func (p *process) stop() {
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	<-p.exited
}

// awaitPort returns when something accepts on p.at.
func (p *process) awaitPort(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		if c, err := net.DialTimeout("tcp", p.at.String(), time.Second); err == nil {
			return c.Close()
		}
		if err := p.alive(ctx, time.After(5*time.Millisecond)); err != nil {
			return err
		}
	}
}

// alive waits for next, unless the process ends before.
func (p *process) alive(ctx context.Context, next <-chan time.Time) error {
	select {
	case <-next:
		return nil
	case <-p.exited:
		return fmt.Errorf("%s ended by itself; it said: %s", p.cmd.Path, p.output)
	case <-ctx.Done():
		return fmt.Errorf("%s is not ready: %w; it said: %s", p.cmd.Path, ctx.Err(), p.output)
	}
}

// awaitReady waits for starling's line on stdout and takes its address.
func (p *process) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	select {
	case <-p.output.ready:
	case <-p.exited:
		return p.alive(ctx, nil)
	case <-ctx.Done():
		return p.alive(ctx, nil)
	}
	for word := range strings.FieldsSeq(p.output.line) {
		if addr, ok := strings.CutPrefix(word, "proxy="); ok {
			at, err := netip.ParseAddrPort(addr)
			p.at = at
			if err != nil {
				return fmt.Errorf("address in %q: %w", p.output.line, err)
			}
			return nil
		}
	}
	return fmt.Errorf("line %q names no proxy=ADDR", p.output.line)
}

// cpu is the time that all threads of the process have run, user and system,
// in nanoseconds: the process's own CPU clock, read from outside.
func (p *process) cpu() (time.Duration, error) {
	const schedClock = 2
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^p.cmd.Process.Pid<<3|schedClock), &ts); err != nil {
		return 0, fmt.Errorf("read the CPU clock of %s: %w", p.cmd.Path, err)
	}
	return time.Duration(ts.Nano()), nil
}

// waited is how long the process's threads were ready to run while something
// else had their CPU. Without schedstat in the kernel it is 0.
func (p *process) waited() (sum time.Duration) {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", p.cmd.Process.Pid))
	for _, f := range files {
		text, _ := os.ReadFile(f) // of a thread that has ended: empty
		if words := strings.Fields(string(text)); len(words) == 3 {
			ns, _ := strconv.ParseInt(words[1], 10, 64)
			sum += time.Duration(ns)
		}
	}
	return sum
}

// resident is the process's memory in bytes.
func (p *process) resident() (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", p.cmd.Process.Pid))
	if err != nil {
		return 0, fmt.Errorf("read the memory of %s: %w", p.cmd.Path, err)
	}
	for l := range strings.Lines(string(text)) {
		if f := strings.Fields(l); len(f) == 3 && f[0] == "Rss:" {
			kib, err := strconv.ParseInt(f[1], 10, 64)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("memory of %s: no Rss line", p.cmd.Path)
}

// pin puts this process on the second CPU it may use and says which is the
// first, for the proxies.
func pin() (proxyCPU, loadCPU int, err error) {
	var may unix.CPUSet
	if err := unix.SchedGetaffinity(0, &may); err != nil {
		return 0, 0, fmt.Errorf("read the CPUs that may be used: %w", err)
	}
	var cpus []int
	for c := 0; c < 1024 && len(cpus) < 2; c++ {
		if may.IsSet(c) {
			cpus = append(cpus, c)
		}
	}
	if len(cpus) < 2 {
		return 0, 0, fmt.Errorf("only one CPU may be used: a proxy and its load need one each")
	}
	return cpus[0], cpus[1], eachThread(func(id int) error { return pinThread(id, cpus[1]) })
}

// eachThread calls do for every thread of this process; one that has ended
// meanwhile is no error.
func eachThread(do func(id int) error) error {
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return fmt.Errorf("list the threads of this process: %w", err)
	}
	for _, t := range threads {
		id, _ := strconv.Atoi(t.Name())
		if err := do(id); err != nil && !errors.Is(err, unix.ESRCH) {
			return err
		}
	}
	return nil
}

// realTime lets this process run before all others on its CPU until undo is
// called, if the system allows it. All threads get the same priority: were it
// the loops' alone, they would spin on what a thread of Go's runtime holds that
// cannot run because of them. Proxies must not be started meanwhile, they
// would inherit it.
func realTime() (undo func(), allowed bool) {
	undo = func() { _ = schedule(unix.SCHED_NORMAL, 0) }
	if schedule(unix.SCHED_FIFO, 10) != nil {
		undo()
		return func() {}, false
	}
	return undo, true
}

// schedule gives all threads one policy. A thread that is made meanwhile has
// its maker's, so it is done again until all had it already: one thread left
// behind would starve the others of its CPU for the rest of the run.
func schedule(policy, priority uint32) error {
	for changed := true; changed; {
		changed = false
		err := eachThread(func(id int) error {
			is, err := unix.SchedGetAttr(id, 0)
			if err != nil || is.Policy == policy {
				return err
			}
			changed = true
			return unix.SchedSetAttr(id, &unix.SchedAttr{Policy: policy, Priority: priority}, 0)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// pinThread pins a thread by its id; 0 is the calling one. New threads and
// children inherit.
func pinThread(id, cpu int) error {
	var set unix.CPUSet
	set.Set(cpu)
	if err := unix.SchedSetaffinity(id, &set); err != nil {
		return fmt.Errorf("pin to CPU %d: %w", cpu, err)
	}
	return nil
}
