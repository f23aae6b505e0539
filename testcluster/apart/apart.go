// Package apart has a test run a node in a process of its own, which can be killed,
// stopped and measured: the test's own program, started once more. It must not know
// what the node is for.
package apart

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/starling-lb/starling/node"
)

// variable tells a process that it is a node, by its configuration's file.
const variable = "STARLING_NODE_APART"

// Run is the node, in the process that Start has started, until that one's parent ends
// or closes its input; in any other it does nothing. A test of the name that Start is
// given calls it.
func Run(ctx context.Context) error {
	path := os.Getenv(variable)
	if path == "" {
		return nil
	}
	config, err := node.Load(path)
	if err != nil {
		return err
	}
	n, err := node.New(config, node.Options{})
	if err == nil {
		err = n.Start(ctx)
	}
	if err != nil {
		return err
	}
	fmt.Printf("ready %s %s\n", n.ProxyAddrs()[0], n.AdminAddr())
	_, _ = io.Copy(io.Discard, os.Stdin)
	last, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = n.Stop(last) // a hard end is one, too
	return nil
}

// Process is a node that is ready.
type Process struct {
	*os.Process
	Proxy, Admin string // addresses

	cmd *exec.Cmd
	in  io.Closer
}

// Start starts one by that configuration file, in which the named test calls Run. What
// the process says of errors goes where log says; nil: nowhere.
func Start(test, config string, log io.Writer) (*Process, error) {
	return start(test, config, log, readyTime)
}

// readyTime is for a node to be ready; one that hangs is killed.
const readyTime = 2 * time.Minute

func start(test, config string, log io.Writer, limit time.Duration) (*Process, error) {
	p := &Process{cmd: exec.Command(os.Args[0], "-test.run=^"+test+"$")}
	p.cmd.Env = append(os.Environ(), variable+"="+config)
	p.cmd.Stderr = log
	in, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	p.in, p.Process = in, p.cmd.Process
	late := time.AfterFunc(limit, func() { _ = p.cmd.Process.Kill() })
	defer late.Stop()
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if n, _ := fmt.Sscanf(lines.Text(), "ready %s %s", &p.Proxy, &p.Admin); n == 2 {
			return p, nil
		}
	}
	return nil, errors.Join(fmt.Errorf("a node of its own has ended before it was ready, or was not within %v", limit), p.End())
}

// End has the node end within a second or so, and waits for it.
func (p *Process) End() error {
	_ = p.in.Close()
	return p.wait()
}

// Kill ends the process at once, stopped or not, and waits for it.
func (p *Process) Kill() {
	_ = p.Process.Kill()
	_ = p.in.Close()
	_ = p.wait() // says that it was killed
}

func (p *Process) wait() error {
	if err := p.cmd.Wait(); err != nil {
		return fmt.Errorf("%s: %w", strings.Join(p.cmd.Args, " "), err)
	}
	return nil
}
