package chaos

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/starling-lb/starling/node"
	"github.com/starling-lb/starling/testcluster"
	"github.com/starling-lb/starling/testcluster/fault"
)

// The levels.
const (
	Inside     = "inside"
	Processes  = "processes"
	Namespaces = "namespaces"
)

// ErrLevel is what is wrapped where this machine, or a level, cannot do something.
var ErrLevel = errors.New("not at this level")

// inside is this process as what nodes run on.
type inside struct {
	dir   string
	links *fault.Links
}

func newInside(dir string) *inside { return &inside{dir, fault.NewLinks()} }

func (g *inside) ways() ways { return g.links }
func (g *inside) end()       { g.links.Stop() }

func (g *inside) places(int) (places, error) {
	var at [4]string
	for i := range at {
		address, err := free()
		if err != nil {
			return places{}, err
		}
		at[i] = address
	}
	return places{gossip: at[0], rpc: at[1], proxy: at[2], admin: at[3], seed: at[0]}, nil
}

// free is an address that nobody has now, for TCP nor for UDP.
func free() (string, error) {
	for range 20 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return "", err
		}
		at := l.Addr().String()
		c, err := net.ListenPacket("udp", at)
		_ = l.Close() // it carried nothing
		if err == nil {
			_ = c.Close()
			return at, nil
		}
	}
	return "", errors.New("no free port")
}

// begin runs a node in this process, whatever the program.
func (g *inside) begin(ctx context.Context, m *member, _ []string) (*body, error) {
	log, err := os.OpenFile(filepath.Join(g.dir, m.name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	n, err := launch(ctx, m.file, testcluster.Seams{Links: g.links, Long: m.logs, Logger: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		_ = log.Close()
		return nil, err
	}
	died := make(chan struct{})
	end := sync.OnceFunc(func() { close(died); _ = log.Close() })
	go func() { // a node that leaves its cluster ends by itself
		select {
		case <-n.Left():
			ctx, cancel := context.WithTimeout(context.Background(), drainTime)
			defer cancel()
			_ = n.Stop(ctx)
			end()
		case <-died:
		}
	}()
	return &body{
		kill: func() { n.Kill(); end() },
		stop: func(ctx context.Context) error { defer end(); return n.Stop(ctx) },
		freeze: func(bool) error {
			return fmt.Errorf("a node that stands still: %w; --level processes has it", ErrLevel)
		},
		tell: func(command string) error { return obey(n, command) },
		died: died,
		handOver: func(context.Context) (*body, string, error) {
			return nil, "", fmt.Errorf("another process in a node's place: %w; --level processes has it", ErrLevel)
		},
	}, nil
}

// twin runs a second node with the data of one that runs.
func (g *inside) twin(m *member) (served bool, words string, err error) {
	n, err := launch(context.Background(), m.file, testcluster.Seams{})
	if err != nil {
		return false, err.Error(), nil
	}
	n.Kill()
	return true, "", nil
}

// launch starts the node of a file.
func launch(ctx context.Context, file string, s testcluster.Seams) (*testcluster.Node, error) {
	cfg, err := node.Load(file)
	if err != nil {
		return nil, err
	}
	s.File = file
	return testcluster.StartNode(ctx, cfg, s)
}

// obey does what a command says to a node's disk or clock: "disk slow 50ms",
// "disk stall", "disk full", "disk fail", "disk mend" or "clock 5s".
func obey(n *testcluster.Node, command string) error {
	words := append(strings.Fields(command), "", "", "")
	by := time.Duration(0)
	if last := words[len(strings.Fields(command))-1]; words[0] == "clock" || words[1] == "slow" {
		var err error
		if by, err = time.ParseDuration(last); err != nil {
			return fmt.Errorf("command %q: %w", command, err)
		}
	}
	switch words[0] + " " + words[1] {
	case "disk slow":
		n.Disk().Slow(by)
	case "disk stall":
		n.Disk().Stall()
	case "disk full":
		n.Disk().Full()
	case "disk fail":
		n.Disk().Fail()
	case "disk mend":
		n.Disk().Mend()
	default:
		if words[0] != "clock" {
			return fmt.Errorf("command %q is none", command)
		}
		n.Clock().Jump(by)
	}
	return nil
}
