package chaos

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/starling-lb/starling/node/handover"
	"github.com/starling-lb/starling/testcluster"
)

// sweep is the first argument of the process that removes the directory.
const sweep = "sweep"

// RunNode is what a node's process does: it serves what a file says, does to its
// disk and clock what it is told at a socket beside that file, drains at SIGTERM,
// carries what it has begun when another process has become the node, and ends when
// in does, since then nobody is left that it could be of use to. Its arguments are
// the file, the host that it calls others from and after how many entries it cuts a
// log, 0 for the usual; with sweep and a directory it removes that when in ends.
func RunNode(args []string, in io.Reader, out, log io.Writer) error {
	if len(args) == 2 && args[0] == sweep {
		return sweepAfter(args[1], in)
	}
	if len(args) != 3 {
		return fmt.Errorf("%d arguments; this is what starling chaos runs its nodes by", len(args))
	}
	logs, err := strconv.Atoi(args[2])
	if err != nil {
		return fmt.Errorf("length of logs: %w", err)
	}
	ends := make(chan os.Signal, 1)
	signal.Notify(ends, syscall.SIGTERM)
	defer signal.Stop(ends)
	n, err := become(args[0], testcluster.Seams{From: args[1], Long: logs, Logger: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		return err
	}
	commands, err := hear(args[0])
	if err != nil {
		n.Kill()
		return err
	}
	defer commands.Close()
	go obeyLoop(commands, n)
	fmt.Fprintln(out, "ready")
	return serveUntil(n, in, ends)
}

// serveUntil returns when the node has ended, or in has.
func serveUntil(n *testcluster.Node, in io.Reader, ends <-chan os.Signal) error {
	alone, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		defer close(alone)
		_, _ = io.Copy(io.Discard, in) // nothing comes
	}()
	select {
	case <-alone:
		n.Kill()
		return nil
	case <-ends:
	case <-n.Left():
	case <-n.Succeeded():
	}
	ctx, cancel := context.WithTimeout(context.Background(), n.DrainTimeout())
	defer cancel()
	go func() { ended <- n.Stop(ctx) }()
	select {
	case <-alone:
		return nil
	case err := <-ended:
		return err
	}
}

// become starts the node of a file, as the heir of another process where that wants
// it.
func become(file string, s testcluster.Seams) (n *testcluster.Node, err error) {
	if s.Before, err = handover.Inherit(); err != nil {
		return nil, err
	}
	if s.Before != nil {
		defer func() {
			if err != nil {
				_ = s.Before.Fail(err) // or it hears of this one's end
			}
		}()
	}
	if s.Program, err = handover.Self(); err != nil {
		return nil, err
	}
	return launch(context.Background(), file, s)
}

// hear is the socket beside a node's file at which this process takes commands.
func hear(file string) (net.Listener, error) {
	path, done, err := commandSocket(filepath.Dir(file), strings.TrimSuffix(filepath.Base(file), ".yaml"), os.Getpid())
	if err != nil {
		return nil, err
	}
	defer done()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		return nil, fmt.Errorf("socket for commands: %w", err)
	}
	l.SetUnlinkOnClose(false) // by that name it is found no more; it goes with the directory
	return l, nil
}

// obeyLoop does what it is told, one after the other.
func obeyLoop(l net.Listener, n *testcluster.Node) {
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			<-time.After(100 * time.Millisecond) // for want of descriptors, say
			continue
		}
		obeyOne(c, n)
	}
}

func obeyOne(c net.Conn, n *testcluster.Node) {
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(answerTime)) // one that cannot be set is one that is closed
	command, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		return
	}
	answer := ""
	if err := obey(n, strings.TrimSpace(command)); err != nil {
		answer = strings.ReplaceAll(err.Error(), "\n", "; ")
	}
	_, _ = fmt.Fprintln(c, answer) // who asked may have left
}

// sweepAfter removes a directory once whoever asked for it is gone, and its nodes
// with it.
func sweepAfter(dir string, in io.Reader) error {
	_, _ = io.Copy(io.Discard, in)
	endHeirs(dir)
	var err error
	for range 20 { // a node that just dies may still write
		if err = os.RemoveAll(dir); err == nil {
			if _, gone := os.Stat(dir); os.IsNotExist(gone) {
				return nil
			}
		}
		<-time.After(100 * time.Millisecond)
	}
	return err
}
