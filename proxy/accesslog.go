package proxy

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// accessBuffer bounds the lines that wait to be written, in bytes: some
	// 2500. Too little drops lines when the disk stalls for a moment; it is
	// held twice, one half filling while the other is written.
	accessBuffer = 1 << 20
	accessFlush  = 200 * time.Millisecond // a line waits no longer for others
)

// accessLog writes a line per stream, in batches and beside the streams: record
// never waits for the writer. What finds no room, or cannot be written, is
// dropped and counted.
type accessLog struct {
	spans    bool          // a line is a span
	every    time.Duration // a line waits no longer for others
	drops    prometheus.Counter
	some     chan struct{} // there is something to do
	half     chan struct{} // the buffer is half full
	stopping chan struct{}
	stopped  chan struct{}

	out   io.WriteCloser // writeLoop's, as the two below
	spare []byte
	torn  bool // a write broke off within a line

	mu      sync.Mutex // guards what follows; held while a line is built, never while one is written
	lines   []byte     // whole lines; room for one more than accessBuffer holds
	next    io.WriteCloser
	started bool
	closed  bool
}

// newAccessLog makes a log that writes to w, which becomes its own: it closes w
// when it stops, or after reopen. drops counts the lines that were lost.
func newAccessLog(w io.WriteCloser, drops prometheus.Counter) *accessLog {
	return &accessLog{
		every: accessFlush, drops: drops, out: w,
		some: make(chan struct{}, 1), half: make(chan struct{}, 1),
		stopping: make(chan struct{}), stopped: make(chan struct{}),
		lines: make([]byte, 0, accessBuffer+maxAccessLine), spare: make([]byte, 0, accessBuffer+maxAccessLine),
	}
}

// openAccessLog opens what a log is given: a file to append to, or for "-"
// standard output, which stays open when the log closes it.
func openAccessLog(path string) (io.WriteCloser, error) {
	if path == "-" {
		return keepOpen{os.Stdout}, nil
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o640)
	if err != nil {
		return nil, fmt.Errorf("access log, set by access_log.path: %w", err)
	}
	return f, nil
}

type keepOpen struct{ io.Writer }

func (keepOpen) Close() error { return nil }

// start begins writing.
func (l *accessLog) start() {
	l.mu.Lock()
	l.started = true
	l.mu.Unlock()
	go l.writeLoop()
}

// stop writes what is left and closes the writer. It gives up waiting when ctx
// ends; then the goroutine ends as soon as the writer lets go of it.
func (l *accessLog) stop(ctx context.Context) error {
	l.mu.Lock()
	first, started := !l.closed, l.started
	l.closed = true
	l.mu.Unlock()
	switch {
	case first && started:
		close(l.stopping)
	case first:
		l.end()
		close(l.stopped)
	}
	select {
	case <-l.stopped:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("write the rest of the access log: %w", ctx.Err())
	}
}

// record logs a stream. It keeps nothing of e.
func (l *accessLog) record(e *accessEntry) {
	l.mu.Lock()
	before := len(l.lines)
	line := l.append(e)
	fits := len(line) <= accessBuffer && !l.closed
	if fits {
		l.lines = line
	}
	l.mu.Unlock()
	switch {
	case !fits:
		l.drops.Inc()
	case before < accessBuffer/2 && len(line) >= accessBuffer/2:
		signal(l.half)
	case before == 0:
		signal(l.some)
	}
}

// append builds a line behind those that wait; mu is held.
func (l *accessLog) append(e *accessEntry) []byte {
	if l.spans {
		return appendSpan(l.lines, e)
	}
	return appendAccessLine(l.lines, e)
}

// reopen has the lines from now on go to w, which becomes the log's own. It
// does not wait: the writer so far is closed once it is idle.
func (l *accessLog) reopen(w io.WriteCloser) {
	l.mu.Lock()
	unused := l.next
	if l.next = w; l.closed {
		unused, l.next = w, nil
	}
	l.mu.Unlock()
	if unused != nil {
		_ = unused.Close() // nothing was written to it
	}
	signal(l.some)
}

func signal(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// writeLoop writes a batch at a time; it sleeps while there is nothing to log.
func (l *accessLog) writeLoop() {
	defer close(l.stopped)
	for {
		select {
		case <-l.some:
		case <-l.stopping:
			l.flush()
			l.end()
			return
		}
		select {
		case <-time.After(l.every):
		case <-l.half:
		case <-l.stopping:
		}
		l.flush()
	}
}

// flush writes the lines that wait.
func (l *accessLog) flush() {
	l.mu.Lock()
	batch, next := l.lines, l.next
	l.lines, l.next = l.spare, nil
	l.mu.Unlock()
	if next != nil {
		_ = l.out.Close() // all of it was written, or counted as lost
		l.out, l.torn = next, false
	}
	if len(batch) > 0 {
		l.write(batch)
	}
	l.spare = batch[:0]
}

// write counts the lines that it cannot write: for want of space on the disk
// above all, which may come back.
func (l *accessLog) write(batch []byte) {
	var err error
	if l.torn {
		if _, err = l.out.Write([]byte{'\n'}); err == nil {
			l.torn = false
		}
	}
	n := 0
	if err == nil {
		n, _ = l.out.Write(batch)
	}
	if n > 0 {
		l.torn = batch[n-1] != '\n'
	}
	if n < len(batch) {
		l.drops.Add(float64(bytes.Count(batch[n:], []byte{'\n'})))
	}
}

// end closes the writer, and the one that was to follow it.
func (l *accessLog) end() {
	l.mu.Lock()
	next := l.next
	l.next = nil
	l.mu.Unlock()
	_ = l.out.Close()
	if next != nil {
		_ = next.Close()
	}
}
