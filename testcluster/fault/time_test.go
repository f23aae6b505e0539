package fault

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestWriteDelayIsALine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const delay, gap = 100 * time.Millisecond, 20 * time.Millisecond
		_, near, far := piped(t, Rule{Write: Way{Delay: delay}})
		start := time.Now()
		go func() {
			for range 10 {
				near.Write([]byte("x"))
				<-time.After(gap)
			}
			near.Close() // what is on its way still arrives
		}()
		for i := range 10 {
			want(t, far, "x")
			if got, due := time.Since(start), time.Duration(i)*gap+2*delay; got != due-delay {
				t.Fatalf("piece %d after %v, want %v", i, got, due-delay)
			}
		}
		if _, err := far.Read(make([]byte, 1)); err != io.EOF {
			t.Fatalf("after Close: %v, want EOF", err)
		}
	})
}

func TestReadDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const delay = 100 * time.Millisecond
		_, near, far := piped(t, Rule{Read: Way{Delay: delay}})
		start := time.Now()
		go func() {
			io.WriteString(far, "hello")
			far.Close()
		}()
		want(t, near, "hel") // the rest is not delayed twice
		want(t, near, "lo")
		if got := time.Since(start); got != delay {
			t.Fatalf("after %v, want %v", got, delay)
		}
		if _, err := near.Read(make([]byte, 1)); err != io.EOF || time.Since(start) != 2*delay {
			t.Fatalf("end: %v after %v, want EOF after %v", err, time.Since(start), 2*delay)
		}
	})
}

func TestDelayShrinksInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, near, far := piped(t, Rule{Write: Way{Delay: time.Second}})
		send(t, near, "first ")
		n.Clear(label)
		send(t, near, "second ")
		n.Set(label, Rule{Write: Way{Delay: time.Millisecond}})
		send(t, near, "third")
		want(t, far, "first second third")
	})
}

func TestDelayedWritesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, near, far := piped(t, Rule{Write: Way{Delay: time.Second}})
		near.SetWriteDeadline(time.Now().Add(500 * time.Millisecond))
		got, err := near.Write(make([]byte, 3*lagLimit))
		if got != lagLimit || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("wrote %d, %v; want %d and the deadline", got, err, lagLimit)
		}
		near.SetWriteDeadline(time.Time{})
		done := make(chan error, 1)
		go func() {
			_, err := near.Write([]byte("end"))
			done <- err
		}()
		if _, err := io.CopyN(io.Discard, far, lagLimit); err != nil {
			t.Fatal(err)
		}
		want(t, far, "end")
		if err := <-done; err != nil {
			t.Fatalf("write after room was made: %v", err)
		}
		n.Clear(label)
	})
}

func TestRate(t *testing.T) {
	for name, r := range map[string]Rule{
		"write": {Write: Way{Rate: 10_000}},
		"read":  {Read: Way{Rate: 10_000}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, near, far := piped(t, r)
				from, to := near, far
				if name == "read" {
					from, to = far, near
				}
				start := time.Now()
				go func() { io.WriteString(from, strings.Repeat("x", 10_000)) }()
				if _, err := io.CopyN(io.Discard, to, 10_000); err != nil {
					t.Fatal(err)
				}
				if got := time.Since(start); got < 980*time.Millisecond || got > 1020*time.Millisecond {
					t.Fatalf("10,000 bytes at 10,000/s took %v", got)
				}
			})
		})
	}
}

func TestStallLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, near, far := piped(t, Rule{})
		got := reading(near, 8) // blocked before the stall began
		synctest.Wait()
		n.Set(label, Rule{Read: Way{Stall: true}, Write: Way{Stall: true}})
		send(t, far, "kept")
		wrote := make(chan error, 1)
		go func() {
			_, err := io.WriteString(near, "later")
			wrote <- err
		}()
		synctest.Wait()
		select {
		case r := <-got:
			t.Fatalf("read %v during the stall", r)
		case err := <-wrote:
			t.Fatalf("write ended during the stall: %v", err)
		default:
		}
		go n.Clear(label)
		want(t, far, "later")
		if r := <-got; r.n != 4 || r.err != nil {
			t.Fatalf("read %v, want the 4 bytes that were kept", r)
		}
	})
}

func TestStallHoldsDelayedWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, near, far := piped(t, Rule{Write: Way{Delay: time.Second}})
		send(t, near, "x")
		n.Set(label, Rule{Write: Way{Stall: true}})
		start := time.Now()
		time.AfterFunc(5*time.Second, func() { n.Clear(label) })
		want(t, far, "x")
		if got := time.Since(start); got != 5*time.Second {
			t.Fatalf("arrived after %v, want 5s", got)
		}
	})
}

// What blocks must obey deadlines, also moved ones, and Close.
func TestDeadlinesAndClose(t *testing.T) {
	dark := map[string]Rule{
		"stall": {Read: Way{Stall: true}, Write: Way{Stall: true}},
		"drop":  {Read: Way{Drop: true}, Write: Way{Stall: true}},
		"slow":  {Read: Way{Delay: time.Hour}, Write: Way{Rate: 1}},
	}
	calls := map[string]func(net.Conn) error{
		"read":  func(c net.Conn) error { _, err := c.Read(make([]byte, 8)); return err },
		"write": func(c net.Conn) error { _, err := c.Write(make([]byte, 100_000)); return err },
	}
	for name, rule := range dark {
		for op, call := range calls {
			t.Run(name+" "+op, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					_, near, far := piped(t, rule)
					go far.Write([]byte("swallowed"))
					go io.Copy(io.Discard, far)
					start := time.Now()
					near.SetDeadline(start.Add(time.Hour / 2))
					time.AfterFunc(time.Second, func() { near.SetDeadline(start.Add(2 * time.Second)) })
					err := call(near)
					var timeout net.Error
					if !errors.Is(err, os.ErrDeadlineExceeded) || !errors.As(err, &timeout) || !timeout.Timeout() || time.Since(start) != 2*time.Second {
						t.Fatalf("%v after %v, want a timeout after 2s", err, time.Since(start))
					}
					near.SetDeadline(time.Time{})
					time.AfterFunc(time.Second, func() { near.Close() })
					if err := call(near); !errors.Is(err, net.ErrClosed) || time.Since(start) != 3*time.Second {
						t.Fatalf("%v after %v, want ErrClosed after 3s", err, time.Since(start))
					}
				})
			})
		}
	}
}

func TestDropSwallows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, near, far := piped(t, Rule{})
		got := reading(near, 8)
		arrived := reading(far, 8)
		synctest.Wait()
		n.Set(label, Rule{Read: Way{Drop: true}, Write: Way{Drop: true}})
		send(t, near, "lost")
		if _, err := io.WriteString(far, "lost too"); err != nil {
			t.Fatal(err)
		}
		far.Close()
		synctest.Wait()
		select {
		case r := <-got:
			t.Fatalf("read %v out of a black hole", r)
		default:
		}
		if r := <-arrived; r.n != 0 {
			t.Fatalf("the peer got %d bytes", r.n)
		}
		n.Clear(label)
		if r := <-got; r.err != io.EOF {
			t.Fatalf("after the black hole %v, want the peer's end", r)
		}
	})
}

func TestDial(t *testing.T) {
	ok := func(context.Context, string, string) (net.Conn, error) { a, _ := net.Pipe(); return a, nil }
	synctest.Test(t, func(t *testing.T) {
		n := New()
		defer n.Stop()
		dial := n.Dialer("", ok)
		n.Set("slow:1", Rule{Read: Way{Delay: time.Second}, Write: Way{Delay: 2 * time.Second}})
		n.Set("dark:1", Rule{Read: Way{Drop: true}})
		start := time.Now()
		c, err := dial(t.Context(), "tcp", "slow:1")
		if err != nil || time.Since(start) != 3*time.Second {
			t.Fatalf("slow dial: %v after %v, want 3s", err, time.Since(start))
		}
		c.Close()

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = dial(ctx, "tcp", "dark:1")
		var timeout net.Error
		if !errors.As(err, &timeout) || !timeout.Timeout() || time.Since(start) != 4*time.Second {
			t.Fatalf("dark dial: %v after %v, want a timeout after 1s", err, time.Since(start)-3*time.Second)
		}
		time.AfterFunc(time.Minute, func() { n.Clear("dark:1") })
		if c, err = dial(t.Context(), "tcp", "dark:1"); err != nil {
			t.Fatalf("dial once the hole is gone: %v", err)
		}
		c.Close()
	})
}

func TestStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, near, far := piped(t, Rule{Write: Way{Delay: time.Hour}})
		send(t, near, "never")
		near.Close() // leaves the sending to the net
		n.Set("dark", Rule{Write: Way{Stall: true}})
		dialing := make(chan error, 1)
		go func() {
			_, err := n.Dialer("dark", nil)(context.Background(), "tcp", "x")
			dialing <- err
		}()
		synctest.Wait()
		n.Stop()
		if err := <-dialing; !errors.Is(err, net.ErrClosed) {
			t.Fatalf("dial under way: %v, want ErrClosed", err)
		}
		if _, err := far.Read(make([]byte, 1)); err != io.EOF {
			t.Fatalf("peer: %v, want EOF", err)
		}
		n.Stop() // again
	})
}
