package chaos

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/starling-lb/starling/testcluster"
)

// sweep is the first argument of the process that removes the directory.
const sweep = "sweep"

// RunNode is what a node's process does: it serves what a file says, does to its
// disk and clock what the lines of in say, drains at SIGTERM, and ends when in
// does, since then nobody is left that it could be of use to. Its arguments are the
// file, the host that it calls others from and after how many entries it cuts a log,
// 0 for the usual; with sweep and a directory it
// removes that when in ends.
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
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ends := make(chan os.Signal, 1)
	signal.Notify(ends, syscall.SIGTERM)
	defer signal.Stop(ends)
	n, err := launch(ctx, args[0], testcluster.Seams{From: args[1], Long: logs, Logger: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "ready")
	alone := make(chan struct{})
	go func() {
		defer close(alone)
		lines := bufio.NewScanner(in)
		for lines.Scan() {
			answer := "done"
			if err := obey(n, lines.Text()); err != nil {
				answer += " " + strings.ReplaceAll(err.Error(), "\n", "; ")
			}
			fmt.Fprintln(out, answer)
		}
	}()
	select {
	case <-alone:
		n.Kill()
		return nil
	case <-ends:
	case <-n.Left():
	}
	ctx, cancel = context.WithTimeout(ctx, n.DrainTimeout())
	defer cancel()
	return n.Stop(ctx)
}

// sweepAfter removes a directory once whoever asked for it is gone, and its nodes
// with it.
func sweepAfter(dir string, in io.Reader) error {
	_, _ = io.Copy(io.Discard, in)
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
