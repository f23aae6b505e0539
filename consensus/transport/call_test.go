package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// echo adds a service that answers with the question; s may say more.
func echo(p peer, name string, s Service) {
	if s.Answer == nil {
		s.Answer = func(_ context.Context, from string, q []byte) ([]byte, error) {
			return append([]byte(from+":"), q...), nil
		}
	}
	s.MaxQuestion, s.Concurrent = max(s.MaxQuestion, 1<<16), max(s.Concurrent, 64)
	p.Serve(name, s)
}

func pair(t *testing.T, s Service) (a, b peer) {
	at := &addresses{}
	a, b = newPeer(t, at, "a"), newPeer(t, at, "b")
	echo(b, "echo", s)
	return a.up(t), b.up(t)
}

func TestCallsSideBySide(t *testing.T) {
	a, b := pair(t, Service{})
	var all sync.WaitGroup
	for i := range 64 {
		all.Go(func() {
			for j := range 20 {
				q := fmt.Sprintf("%d.%d", i, j)
				if got, err := a.Call(t.Context(), "b", "echo", []byte(q)); err != nil || string(got) != "a:"+q {
					t.Errorf("asked %s, got %q, %v", q, got, err)
				}
			}
		})
	}
	all.Wait()
	if n := len(b.accepted.pick(func(*conn) bool { return true })); n != 1 {
		t.Errorf("%d connections carried the calls, one is enough", n)
	}
}

func TestACallEnds(t *testing.T) {
	block := func(ctx context.Context, _ string, q []byte) ([]byte, error) {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	for _, c := range []struct {
		name    string
		service Service
		node    string
		ask     string
		q       int
		want    func(error) bool
		sent    bool // it may have been
	}{
		{"nobody there", Service{}, "x", "echo", 1, func(error) bool { return true }, false},
		{"no such service", Service{}, "b", "x", 1, refused(RefusedService), false},
		{"too large", Service{}, "b", "echo", 1<<16 + 1, refused(RefusedSize), false},
		{"failed", Service{Answer: func(context.Context, string, []byte) ([]byte, error) { return nil, errors.New("no luck") }}, "b", "echo", 1,
			func(err error) bool { r := (*RemoteError)(nil); return errors.As(err, &r) && r.Text == "no luck" }, true},
		{"slow, the service's time", Service{Answer: block, MaxTime: 20 * time.Millisecond}, "b", "echo", 1,
			func(err error) bool { r := (*RemoteError)(nil); return errors.As(err, &r) }, true},
		{"answer too large", Service{Answer: func(context.Context, string, []byte) ([]byte, error) { return make([]byte, maxAnswer+1), nil }}, "b", "echo", 1,
			func(err error) bool { r := (*RemoteError)(nil); return errors.As(err, &r) }, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, _ := pair(t, c.service)
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			_, err := a.Call(ctx, c.node, c.ask, make([]byte, c.q))
			if err == nil || !c.want(err) {
				t.Errorf("got %v", err)
			}
			if errors.Is(err, ErrNotSent) == c.sent {
				t.Errorf("may have been sent: want %v, got %v", c.sent, err)
			}
		})
	}
}

func refused(code Code) func(error) bool {
	return func(err error) bool { r := (*RefusedError)(nil); return errors.As(err, &r) && r.Code == code }
}

// TestTooLargeDoesNotBreakTheLine: a question over the limit is refused alone.
func TestTooLargeDoesNotBreakTheLine(t *testing.T) {
	a, _ := pair(t, Service{})
	for range 3 {
		if _, err := a.Call(t.Context(), "b", "echo", make([]byte, 1<<17)); !refused(RefusedSize)(err) {
			t.Fatalf("got %v", err)
		}
		if _, err := a.Call(t.Context(), "b", "echo", []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
}

func TestMoreThanTheLimitIsRefusedAtOnce(t *testing.T) {
	enter, leave := make(chan struct{}, 64), make(chan struct{})
	at := &addresses{}
	a, b := newPeer(t, at, "a"), newPeer(t, at, "b")
	b.Serve("slow", Service{MaxQuestion: 10, Concurrent: 2, Answer: func(context.Context, string, []byte) ([]byte, error) {
		enter <- struct{}{}
		<-leave
		return nil, nil
	}})
	a.up(t)
	b.up(t)
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			if _, err := a.Call(t.Context(), "b", "slow", nil); err != nil {
				t.Error(err)
			}
		})
		<-enter
	}
	_, err := a.Call(t.Context(), "b", "slow", nil)
	if !refused(RefusedBusy)(err) || !errors.Is(err, ErrNotSent) {
		t.Errorf("the third got %v", err)
	}
	close(leave)
	all.Wait()
}

// TestStopLetsCallsFinish and cuts them when its time is over.
func TestStopLetsCallsFinish(t *testing.T) {
	enter, leave := make(chan struct{}, 2), make(chan struct{})
	a, b := pair(t, Service{Answer: func(ctx context.Context, _ string, q []byte) ([]byte, error) {
		enter <- struct{}{}
		<-leave
		return []byte("done"), nil
	}})
	answer := make(chan error, 1)
	go func() {
		got, err := a.Call(t.Context(), "b", "echo", nil)
		if err == nil && string(got) != "done" {
			err = fmt.Errorf("got %q", got)
		}
		answer <- err
	}()
	<-enter
	stopped := make(chan struct{})
	go func() { b.down(t); close(stopped) }()
	<-b.stopping
	if _, err := a.Call(t.Context(), "b", "echo", nil); !refused(RefusedStopping)(err) {
		t.Errorf("a new call got %v", err)
	}
	close(leave)
	if err := <-answer; err != nil {
		t.Error(err)
	}
	<-stopped
}

func TestStopCutsWhatDoesNotFinish(t *testing.T) {
	enter := make(chan struct{}, 1)
	a, b := pair(t, Service{Answer: func(ctx context.Context, _ string, q []byte) ([]byte, error) {
		enter <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	}})
	answer := make(chan error, 1)
	go func() { _, err := a.Call(t.Context(), "b", "echo", nil); answer <- err }()
	<-enter
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.Stop(ctx); err != nil {
		t.Error(err)
	}
	if err := <-answer; err == nil || errors.Is(err, ErrNotSent) {
		t.Errorf("the outcome is unknown, but the caller got %v", err)
	}
}

// TestALineComesBack: the other side restarts on another port.
func TestALineComesBack(t *testing.T) {
	a, b := pair(t, Service{})
	if _, err := a.Call(t.Context(), "b", "echo", nil); err != nil {
		t.Fatal(err)
	}
	b.down(t)
	b = newPeer(t, b.Resolver.(*addresses), "b")
	echo(b, "echo", Service{})
	b.up(t)
	eventually(t, func() string {
		if _, err := a.Call(t.Context(), "b", "echo", nil); err != nil {
			return err.Error()
		}
		return ""
	})
}

// TestMovedPeer: what was dialed at a node's old address is closed although it
// works, so that nobody goes on with a node that is no longer that one.
func TestMovedPeer(t *testing.T) {
	at := &addresses{}
	a, b := newPeer(t, at, "a").up(t), newPeer(t, at, "b").up(t)
	ga, gb := openGroup(t, a, GroupID{1, 1}), openGroup(t, b, GroupID{1, 1})
	c, err := ga.DialNode("b", patience)
	if err != nil {
		t.Fatal(err)
	}
	in, err := gb.Accept()
	if err != nil {
		t.Fatal(err)
	}
	a.dropMoved()
	if _, err := in.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Fatalf("nothing had moved: %v", err)
	}
	at.set("b", "127.0.0.1:1")
	a.dropMoved()
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the old connection is still open: %v", err)
	}
}

// TestGone hears of a process that ended, and not of one that only closes
// connections or does not answer.
func TestGone(t *testing.T) {
	at := &addresses{}
	heard := make(chan string, 10)
	var probes atomic.Int32
	a := newPeer(t, at, "a", func(_ *Config, o *Options) {
		o.Gone = func(node string) { heard <- node }
		dial := o.Dial
		o.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			probes.Add(1)
			return dial(ctx, network, address)
		}
	}).up(t)
	b := newPeer(t, at, "b").up(t)
	ga, gb := openGroup(t, a, GroupID{1, 1}), openGroup(t, b, GroupID{1, 1})
	connect := func() (net.Conn, net.Conn) {
		c, err := ga.DialNode("b", patience)
		if err != nil {
			t.Fatal(err)
		}
		in, err := gb.Accept()
		if err != nil {
			t.Fatal(err)
		}
		return c, in
	}
	c, in := connect()
	before := probes.Load()
	_ = in.Close()
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Fatal("it should have ended")
	}
	eventually(t, func() string {
		if probes.Load() == before {
			return "a broken connection was not looked into"
		}
		return ""
	})
	c, _ = connect()
	select {
	case node := <-heard:
		t.Fatalf("%s was said to be gone while it served", node)
	default:
	}
	b.down(t)
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Fatal("it should have ended")
	}
	select {
	case node := <-heard:
		if node != "b" {
			t.Errorf("%s was said to be gone", node)
		}
	case <-time.After(patience):
		t.Error("nobody said that b is gone")
	}
}
