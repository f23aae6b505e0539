//go:build unix

package consensus

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/starling-lb/starling/consensus/transport"
)

// childAt names, to a process of this test's own, where the nodes b and c are, and
// the relays that lead there.
const childAt = "CONSENSUS_TEST_PEERS"

// TestStoppedProcess: a leader in a process of its own is stopped (SIGSTOP) with
// answers under way to it, another is elected and commits; then the first one goes
// on, is asked, and gets the old answers. Raft's own check takes them for a proof;
// ours must not.
func TestStoppedProcess(t *testing.T) {
	w := newTown(t, 0)
	w.add("b")
	w.add("c")
	atB, atC := w.net.where("b"), w.net.where("c")
	toB, toC := newRelay(t, atB), newRelay(t, atC)
	c := newChild(t, strings.Join([]string{atB, atC, toB.Addr().String(), toC.Addr().String()}, ","))
	w.net.set("a", c.line(t, "at"))
	w.open(1, three(), "b", "c")
	w.eventually(func() string {
		led := w.leader(1, "b", "c")
		if err := led.groups.Transfer(t.Context(), led.groups.Group(1), "a"); err != nil {
			return err.Error()
		}
		return ""
	})
	c.line(t, "leads")
	w.net.close(road{"b", "a"}) // it shall not hear of their election from them
	w.net.close(road{"c", "a"})
	toB.hold()
	toC.hold()
	c.say(t, "before")
	w.eventually(func() string {
		if !toB.holds() || !toC.holds() {
			return "no answer is under way"
		}
		return ""
	})
	c.signal(t, syscall.SIGSTOP)
	toB.cut()
	toC.cut()
	w.propose(1, "committed elsewhere", "b", "c")
	c.say(t, "late")
	c.signal(t, syscall.SIGCONT)
	c.line(t, "asked")
	toB.release()
	toC.release()
	if said := c.line(t, "raft"); said != "yes" {
		t.Errorf("Raft's check is not fooled (%s): is the cure still needed?", said)
	}
	if said := c.line(t, "proven"); said == "yes" {
		t.Error("a leader that was stopped, and is none any more, proved itself")
	}
}

// child is that process, and what it says.
type child struct {
	*exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

func newChild(t *testing.T, peers string) *child {
	t.Helper()
	c := &child{Cmd: exec.Command(os.Args[0])}
	c.Env = append(os.Environ(), childAt+"="+peers)
	c.Stderr = t.Output()
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	c.in, c.out = in, bufio.NewScanner(out)
	late := time.AfterFunc(patience, func() { _ = c.Process.Kill() }) // ends any wait for a line
	t.Cleanup(func() {
		late.Stop()
		_ = c.Process.Kill()
		_ = c.Wait() // killed, as it should be
	})
	return c
}

func (c *child) say(t *testing.T, line string) {
	t.Helper()
	if _, err := fmt.Fprintln(c.in, line); err != nil {
		t.Fatal(err)
	}
}

// line waits for a line that begins with a word, and returns the rest.
func (c *child) line(t *testing.T, word string) string {
	t.Helper()
	for c.out.Scan() {
		if first, rest, _ := strings.Cut(c.out.Text(), " "); first == word {
			return rest
		}
	}
	t.Fatalf("the process ended without saying %q: %v", word, c.out.Err())
	return ""
}

func (c *child) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := c.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
	if s != syscall.SIGSTOP {
		return
	}
	var status syscall.WaitStatus
	for { // until it has really stopped
		if _, err := syscall.Wait4(c.Process.Pid, &status, syscall.WUNTRACED, nil); errors.Is(err, syscall.EINTR) {
			continue
		} else if err != nil || !status.Stopped() {
			t.Fatalf("it did not stop: %v, %v", status, err)
		}
		return
	}
}

// runChild is node a: it keeps its office for a minute whatever it hears, as on a
// machine that was suspended, whose clock for timers stood still.
func runChild(peers string) error {
	at := strings.Split(peers, ",")
	where := newNetwork()
	where.set("b", at[0])
	where.set("c", at[1])
	relays := map[string]string{at[0]: at[2], at[1]: at[3]}
	log := slog.New(slog.DiscardHandler)
	port, err := transport.New(transport.Config{Address: "127.0.0.1:0"}, transport.Options{
		Node: "a", Cluster: func() string { return "c" }, Resolver: where, Log: log,
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, relays[address])
		},
		Listen: (&net.ListenConfig{}).Listen,
	})
	if err != nil {
		return err
	}
	long := quick()
	long.Heartbeat, long.Lease = time.Minute, time.Minute
	groups, err := New(Options{Node: "a", Transport: port, Store: &memory{}, Log: log, Timing: long, tune: func(g *Group) { g.rpc = patience }})
	if err != nil {
		return err
	}
	if err := port.Start(context.Background()); err != nil {
		return err
	}
	g, err := groups.Open(Spec{ID: groupID(1), Founders: three(), Machine: func() StateMachine { return &diary{} }})
	if err != nil {
		return err
	}
	fmt.Println("at", port.Addr())
	tick := time.NewTicker(5 * time.Millisecond)
	for ; !g.State().Open; <-tick.C {
	}
	fmt.Println("leads")
	orders := bufio.NewScanner(os.Stdin)
	for orders.Scan() {
		if err := g.obey(orders.Text()); err != nil {
			return err
		}
	}
	return orders.Err()
}

// obey has Raft ask the others before the stop, and itself be asked after it.
func (g *Group) obey(order string) error {
	r := g.current().raft
	switch order {
	case "before":
		r.VerifyLeader()
		return nil
	case "late":
	default:
		return fmt.Errorf("no such order: %q", order)
	}
	proof := make(chan error, 1)
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	asked := make(chan struct{})
	go func() {
		close(asked)
		_, err := g.Proven(ctx)
		proof <- err
	}()
	<-asked
	late := r.VerifyLeader()
	for range 30 { // Raft takes from its queues in any order: by now it has taken this one, too
		_ = r.BootstrapCluster(raft.Configuration{}).Error()
	}
	fmt.Println("asked")
	fmt.Println("raft", verdict(late.Error()))
	fmt.Println("proven", verdict(<-proof))
	return nil
}

func verdict(err error) string {
	if err == nil {
		return "yes"
	}
	return err.Error()
}

// relay stands between the child and one node. What the node answers can be held
// back, and what the child asks be swallowed.
type relay struct {
	net.Listener
	to string

	mu    sync.Mutex
	held  chan struct{} // closed when answers may go on; nil: they do
	kept  bool          // an answer is held back
	deaf  bool          // nothing of the child comes through any more
	conns []net.Conn
	tasks sync.WaitGroup
}

func newRelay(t *testing.T, to string) *relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{Listener: l, to: to}
	r.tasks.Go(r.acceptLoop)
	t.Cleanup(func() {
		_ = l.Close()
		r.release()
		r.mu.Lock()
		for _, c := range r.conns {
			_ = c.Close()
		}
		r.mu.Unlock()
		r.tasks.Wait()
	})
	return r
}

func (r *relay) acceptLoop() {
	for {
		in, err := r.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", r.to)
		if err != nil {
			_ = in.Close()
			continue
		}
		r.mu.Lock()
		r.conns = append(r.conns, in, out)
		r.mu.Unlock()
		r.tasks.Go(func() { r.carry(out, in, r.swallow) })
		r.tasks.Go(func() { r.carry(in, out, r.wait) })
	}
}

// carry copies until either end closes; pass may wait, and says whether to.
func (r *relay) carry(to, from net.Conn, pass func() bool) {
	defer func() { _, _ = to.Close(), from.Close() }()
	b := make([]byte, 32<<10)
	for {
		n, err := from.Read(b)
		if err != nil {
			return
		}
		if !pass() {
			continue
		}
		if _, err := to.Write(b[:n]); err != nil {
			return
		}
	}
}

func (r *relay) swallow() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.deaf
}

func (r *relay) wait() bool {
	r.mu.Lock()
	held := r.held
	r.kept = r.kept || held != nil
	r.mu.Unlock()
	if held != nil {
		<-held
	}
	return true
}

func (r *relay) hold() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held = make(chan struct{})
}

func (r *relay) holds() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.kept
}

func (r *relay) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.deaf = true
}

func (r *relay) release() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held != nil {
		close(r.held)
		r.held = nil
	}
}
