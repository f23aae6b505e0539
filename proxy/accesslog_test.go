package proxy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
)

// lossCount stands in for the counter of drops.
type lossCount struct {
	prometheus.Counter
	n atomic.Int64
}

func (c *lossCount) Inc()          { c.n.Add(1) }
func (c *lossCount) Add(n float64) { c.n.Add(int64(n)) }

// paper is written on. A write first takes a turn from gate, if there is one,
// and fails with no space left when room is used up.
type paper struct {
	gate chan struct{}
	room int // bytes; negative: no bound

	mu     sync.Mutex
	text   []byte
	writes int
	closed int
}

func blank() *paper { return &paper{room: -1} }

func (p *paper) Write(b []byte) (int, error) {
	if p.gate != nil {
		<-p.gate
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed > 0 {
		return 0, os.ErrClosed
	}
	p.writes++
	n := len(b)
	if p.room >= 0 {
		n = min(n, p.room)
		p.room -= n
	}
	p.text = append(p.text, b[:n]...)
	if n < len(b) {
		return n, errors.New("no space left")
	}
	return n, nil
}

func (p *paper) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed++
	return nil
}

func (p *paper) makeRoom() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.room = -1
}

// read tells what stands there: targets of good lines, and how many others.
func (p *paper) read(t *testing.T) (targets string, broken int) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.text) > 0 && p.text[len(p.text)-1] != '\n' {
		broken++
	}
	for _, line := range bytes.SplitAfter(p.text, []byte("\n")) {
		var l struct{ Target string }
		if err := json.Unmarshal(line, &l); err == nil {
			targets += l.Target
		} else if len(line) > 0 && line[len(line)-1] == '\n' {
			broken++
		}
	}
	return targets, broken
}

func (p *paper) state() (writes, closed int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.writes, p.closed
}

// logged runs a story with a log on w, in a bubble of its own: time passes
// only when all wait.
func logged(t *testing.T, w io.WriteCloser, story func(t *testing.T, l *accessLog, drops *lossCount)) {
	t.Helper()
	leaks := goleak.IgnoreCurrent()
	synctest.Test(t, func(t *testing.T) {
		drops := &lossCount{}
		l := newAccessLog(w, drops)
		l.start()
		story(t, l, drops)
		if err := l.stop(t.Context()); err != nil {
			t.Error(err)
		}
	})
	goleak.VerifyNone(t, leaks)
}

// pass lets time go by in the bubble, and all come to rest.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func write(l *accessLog, targets ...string) {
	for _, s := range targets {
		l.record(&accessEntry{target: []byte(s)})
	}
}

func TestAccessLogFlushesInTime(t *testing.T) {
	p := blank()
	logged(t, p, func(t *testing.T, l *accessLog, drops *lossCount) {
		for range 2 {
			before, _ := p.state()
			write(l, "a")
			pass(accessFlush - time.Millisecond)
			write(l, "b")
			synctest.Wait()
			if writes, _ := p.state(); writes != before {
				t.Error("written at once, not in a batch")
			}
			pass(time.Millisecond)
			if writes, _ := p.state(); writes != before+1 {
				t.Errorf("%d writes within %v", writes-before, accessFlush)
			}
			pass(time.Hour)
		}
		if drops.n.Load() != 0 {
			t.Errorf("%d dropped", drops.n.Load())
		}
	})
	if targets, broken := p.read(t); targets != "abab" || broken != 0 {
		t.Errorf("logged %q, %d broken", targets, broken)
	}
}

func TestAccessLogFlushesAHalfFullBuffer(t *testing.T) {
	p := blank()
	logged(t, p, func(t *testing.T, l *accessLog, _ *lossCount) {
		begin := time.Now()
		for range accessBuffer / 2 / 2000 {
			write(l, strings.Repeat("x", maxLogged))
		}
		synctest.Wait()
		if writes, _ := p.state(); writes != 1 || time.Since(begin) != 0 {
			t.Errorf("%d writes after %v", writes, time.Since(begin))
		}
	})
}

func TestAccessLogStop(t *testing.T) {
	p := blank()
	logged(t, p, func(t *testing.T, l *accessLog, drops *lossCount) {
		write(l, "a", "b")
		for range 2 {
			if err := l.stop(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if targets, _ := p.read(t); targets != "ab" {
			t.Errorf("logged %q", targets)
		}
		late := blank()
		l.reopen(late)
		write(l, "c")
		if _, closed := late.state(); closed != 1 || drops.n.Load() != 1 {
			t.Errorf("after the end: writer closed %d times, %d dropped", closed, drops.n.Load())
		}
	})
	if _, closed := p.state(); closed != 1 {
		t.Errorf("closed %d times", closed)
	}
}

func TestAccessLogNeverStarted(t *testing.T) {
	p := blank()
	l := newAccessLog(p, &lossCount{})
	if err := l.stop(t.Context()); err != nil {
		t.Error(err)
	}
	if _, closed := p.state(); closed != 1 {
		t.Errorf("closed %d times", closed)
	}
}

// A writer that hangs costs lines, never a wait, and a bounded memory.
func TestAccessLogDoesNotWait(t *testing.T) {
	p := blank()
	var recorded, kept int64
	logged(t, p, func(t *testing.T, l *accessLog, drops *lossCount) {
		p.gate = make(chan struct{}) // the bubble's, so that it knows who hangs
		write(l, "a")
		pass(accessFlush)
		begin := time.Now()
		for recorded = 1; recorded < 20_000; recorded++ {
			write(l, "b")
		}
		if time.Since(begin) != 0 {
			t.Errorf("recording took %v of waiting", time.Since(begin))
		}
		if cap(l.lines) != accessBuffer+maxAccessLine {
			t.Errorf("the buffer grew to %d", cap(l.lines))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := l.stop(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("stop ended with %v", err)
		}
		kept = recorded - drops.n.Load()
		close(p.gate)
	})
	if targets, broken := p.read(t); int64(len(targets)) != kept || kept == recorded || kept < 1000 || broken != 0 {
		t.Errorf("%d logged of %d, %d of them counted as kept, %d broken", len(targets), recorded, kept, broken)
	}
}

func TestAccessLogReopen(t *testing.T) {
	first, second, third := blank(), blank(), blank()
	logged(t, first, func(t *testing.T, l *accessLog, _ *lossCount) {
		write(l, "a")
		pass(time.Second)
		l.reopen(second)
		l.reopen(third) // before second was ever used
		write(l, "b")
		pass(time.Second)
		_, closed1 := first.state()
		_, closed2 := second.state()
		if closed1 != 1 || closed2 != 1 {
			t.Errorf("closed %d and %d times", closed1, closed2)
		}
		l.reopen(blank()) // taken up by an idle log too
		pass(time.Second)
		if _, closed := third.state(); closed != 1 {
			t.Errorf("the third closed %d times", closed)
		}
	})
	for i, p := range []*paper{first, second, third} {
		if targets, broken := p.read(t); targets != []string{"a", "", "b"}[i] || broken != 0 {
			t.Errorf("writer %d has %q, %d broken", i, targets, broken)
		}
	}
}

// A full disk costs the lines that find no room, and not the first one after.
func TestAccessLogOnAFullDisk(t *testing.T) {
	line := len(appendAccessLine(nil, &accessEntry{target: []byte("a")}))
	for _, room := range []int{0, line, line + 1, 2*line - 2} {
		t.Run(fmt.Sprint(room), func(t *testing.T) {
			p := &paper{room: room}
			logged(t, p, func(t *testing.T, l *accessLog, drops *lossCount) {
				write(l, "a", "b", "c")
				pass(time.Second)
				write(l, "d")
				pass(time.Second)
				if want := int64(4 - room/line); drops.n.Load() != want {
					t.Errorf("%d dropped, want %d", drops.n.Load(), want)
				}
				p.makeRoom()
				write(l, "e")
			})
			want, torn := "abc"[:room/line]+"e", min(room%line, 1)
			if targets, broken := p.read(t); targets != want || broken != torn {
				t.Errorf("logged %q, %d broken; want %q, %d", targets, broken, want, torn)
			}
		})
	}
}

func TestAccessLogFromManyStreams(t *testing.T) {
	p := blank()
	drops := &lossCount{}
	l := newAccessLog(p, drops)
	l.start()
	var streams sync.WaitGroup
	for range 8 {
		streams.Go(func() {
			for range 500 {
				write(l, "x")
			}
		})
	}
	streams.Wait()
	if err := l.stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if targets, broken := p.read(t); len(targets)+int(drops.n.Load()) != 4000 || broken != 0 {
		t.Errorf("%d logged, %d dropped, %d broken; want 4000 and none", len(targets), drops.n.Load(), broken)
	}
}

type discard struct{ io.Writer }

func (discard) Close() error { return nil }

func TestAccessLogDoesNotAllocate(t *testing.T) {
	l := newAccessLog(discard{io.Discard}, &lossCount{})
	l.start()
	e := fullEntry()
	e.target = []byte("/é\xff\n\"")
	if n := testing.AllocsPerRun(2000, func() { l.record(e) }); n > 0 {
		t.Errorf("%v allocations for a line", n)
	}
	if err := l.stop(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestOpenAccessLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "access.log")
	for _, text := range []string{"a\n", "b\n"} {
		w, err := openAccessLog(path)
		if err != nil {
			t.Fatal(err)
		}
		_, err = w.Write([]byte(text))
		if err := errors.Join(err, w.Close()); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(path); string(got) != "a\nb\n" {
		t.Errorf("the file holds %q, %v", got, err)
	}
	if _, err := openAccessLog(filepath.Join(path, "x")); err == nil || !strings.Contains(err.Error(), "access_log.path") {
		t.Errorf("a path that cannot be: %v", err)
	}
	w, err := openAccessLog("-")
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stdout.Stat(); err != nil {
		t.Errorf("standard output was closed: %v", err)
	}
}
