package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

var ordinaryFull = flag.Bool("ordinary.full", false, "TestOrdinaryDay with streams of 30 s and a drain of 40 s")

const (
	ordinaryStreams = 1000 // half of them WebSockets
	ordinaryReloads = 20
	beat            = time.Second     // between two signs of life of a stream
	dayLimit        = 8 * time.Minute // for whatever is slow where many share a machine
)

// day is a node, its backends and its streams.
type day struct {
	t      *testing.T
	config string
	urls   []string      // of two backends
	over   chan struct{} // closed when streams may end

	stdout, stderr printed
	code           chan int
	proxy, admin   string
}

// TestOrdinaryDay: 1,000 streams are open, half of them WebSockets; the configuration
// is changed 20 times, and then the node is told to end. No stream is cut, no request
// fails meanwhile, and the node says so when it ends.
func TestOrdinaryDay(t *testing.T) {
	d := &day{t: t, config: filepath.Join(t.TempDir(), "starling.yaml"), over: make(chan struct{}), code: make(chan int, 1)}
	least := 2 * time.Second
	if *ordinaryFull {
		least = 30 * time.Second
	}
	for range 2 {
		s := httptest.NewServer(http.HandlerFunc(d.serve))
		t.Cleanup(s.Close)
		d.urls = append(d.urls, s.URL)
	}
	end := sync.OnceFunc(func() { close(d.over) })
	defer end()
	d.start()
	enough := time.NewTimer(least)
	defer enough.Stop()
	var streams sync.WaitGroup
	var cut, open atomic.Int64
	for i := range ordinaryStreams {
		streams.Go(func() {
			carry := d.events
			if i%2 == 1 {
				carry = d.socket
			}
			if err := carry(func() { open.Add(1) }); err != nil {
				cut.Add(1)
				t.Errorf("stream %d: %v", i, err)
			}
		})
	}
	within(t, dayLimit, func() string {
		if n := open.Load() + cut.Load(); n < ordinaryStreams {
			return fmt.Sprintf("%d streams are open", n)
		}
		return ""
	})
	passing, pass := context.WithCancel(context.Background())
	var requests sync.WaitGroup
	requests.Go(func() { d.pass(passing) })
	for i := range ordinaryReloads {
		d.reload(i + 1)
	}
	pass()
	requests.Wait()
	within(t, dayLimit, func() string {
		var out printed
		want := fmt.Sprintf(`"in_flight":%d,`, ordinaryStreams)
		if run([]string{"status", "--json", "--admin", "http://" + d.admin}, &out, &out); !strings.Contains(out.String(), want) {
			return out.String()
		}
		return ""
	})
	if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	within(t, dayLimit, func() string { return d.lacks(fmt.Sprintf("msg=draining streams=%d ", ordinaryStreams)) })
	<-enough.C
	end()
	streams.Wait()
	d.ended(0, fmt.Sprintf("finished=%d cut=0", ordinaryStreams))
}

// TestDrainDeadlineIsKept: who does not end is cut at the deadline, and the exit code
// says so.
func TestDrainDeadlineIsKept(t *testing.T) {
	d := &day{t: t, config: filepath.Join(t.TempDir(), "starling.yaml"), over: make(chan struct{}), code: make(chan int, 1)}
	s := httptest.NewServer(http.HandlerFunc(d.serve))
	t.Cleanup(s.Close)
	defer close(d.over)
	d.urls = []string{s.URL, s.URL}
	d.start()
	began := make(chan struct{}, 2)
	var streams sync.WaitGroup
	for _, carry := range []func(func()) error{d.events, d.socket} {
		streams.Go(func() {
			if err := carry(func() { began <- struct{}{} }); err == nil {
				t.Error("a stream ended whole, though it had not ended")
			}
		})
	}
	<-began
	<-began
	d.write(1, "1s")
	if code := run([]string{"reload", "--admin", "http://" + d.admin}, io.Discard, &d.stderr); code != 0 {
		t.Fatalf("reload: exit %d", code)
	}
	if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	streams.Wait()
	d.ended(3, "cut=2", "cut_by=deadline", "ended.drained=2", "the drain deadline (1s) cut 2 streams")
}

// serve is a backend: /events and /socket go on until the day is over.
func (d *day) serve(w http.ResponseWriter, q *http.Request) {
	switch q.URL.Path {
	case "/events":
		w.Header().Set("Content-Type", "text/event-stream")
		tick := time.NewTicker(beat)
		defer tick.Stop()
		for {
			fmt.Fprint(w, "data: beat\n\n")
			w.(http.Flusher).Flush()
			select {
			case <-tick.C:
			case <-d.over:
				fmt.Fprint(w, "data: [DONE]\n\n")
				return
			case <-q.Context().Done():
				return
			}
		}
	case "/socket":
		c, in, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer c.Close()
		io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		head := make([]byte, 6) // of a frame, masked by zeros
		for {
			if _, err := io.ReadFull(in, head); err != nil {
				return
			}
			if head[0] == 0x88 {
				c.Write([]byte{0x88, 0})
				return
			}
			c.Write([]byte{0x81, 0})
		}
	default:
		fmt.Fprintln(w, "ok")
	}
}

// write makes a version of the file. Each adds or takes away a backend with streams, a
// pool with streams, and a listener.
func (d *day) write(version int, drain string) {
	d.t.Helper()
	backends := fmt.Sprintf("[{id: b1, url: %s, weight: %d}, {id: b2, url: %s}]", d.urls[0], 1+version%3, d.urls[1])
	if version%2 == 1 {
		backends = fmt.Sprintf("[{id: b1, url: %s}]", d.urls[0])
	}
	pool, more := "p", ""
	if version%4 >= 2 {
		pool = "r"
	}
	if version%3 == 1 {
		more = "  - {address: \"localhost:0\", routes: [{pool: " + pool + "}]}\n"
	}
	text := fmt.Sprintf(`reload: {watch: false}
node: {name: n1, data_dir: %s/data, drain_timeout: %s}
admin: {address: 127.0.0.1:0}
timeouts: {request_header: %ds}
listeners:
  - {address: 127.0.0.1:0, max_connections: 4000, routes: [{path_prefix: /v%d, pool: %s}, {pool: %s}]}
%spools:
  %s: {backends: %s, timeouts: {stream_idle: %dm}, health: {enabled: false}, backend: {engine: none}}
`, filepath.Dir(d.config), drain, 5+version, version, pool, pool, more, pool, backends, 1+version)
	if err := os.WriteFile(d.config, []byte(text), 0o600); err != nil {
		d.t.Fatal(err)
	}
}

func (d *day) start() {
	d.t.Helper()
	d.write(0, "40s")
	go func() { d.code <- run([]string{"serve", "--config", d.config}, &d.stdout, &d.stderr) }()
	soon(d.t, func() string {
		if n, _ := fmt.Sscanf(d.stdout.String(), "ready proxy=%s admin=%s\n", &d.proxy, &d.admin); n == 2 {
			return ""
		}
		return "not ready: " + d.stderr.String()
	})
}

func (d *day) reload(version int) {
	d.t.Helper()
	d.write(version, "40s")
	var out, errs printed
	if code := run([]string{"reload", "--admin", "http://" + d.admin}, &out, &errs); code != 0 || !strings.Contains(out.String(), "in force now") {
		d.t.Errorf("reload %d: exit %d, %s%s", version, code, out.String(), errs.String())
	}
}

// lacks is what is missing of words in the log.
func (d *day) lacks(words ...string) string {
	for _, w := range words {
		if !strings.Contains(d.stderr.String(), w) {
			return fmt.Sprintf("the log lacks %q", w)
		}
	}
	return ""
}

// ended waits for the node's end.
func (d *day) ended(code int, words ...string) {
	d.t.Helper()
	select {
	case got := <-d.code:
		if lacks := d.lacks(words...); got != code || lacks != "" {
			d.t.Errorf("exit %d, want %d; %s:\n%s", got, code, lacks, tail(d.stderr.String()))
		}
	case <-time.After(dayLimit):
		d.t.Fatal("still running after SIGTERM")
	}
}

func tail(text string) string { return text[max(0, len(text)-2000):] }

// dial sends a head and reads that of the answer.
func (d *day) dial(head string) (net.Conn, *bufio.Reader, *http.Response, error) {
	c, err := net.Dial("tcp", d.proxy)
	if err != nil {
		return nil, nil, nil, err
	}
	_ = c.SetDeadline(time.Now().Add(dayLimit))
	if _, err := io.WriteString(c, head); err != nil {
		return c, nil, nil, err
	}
	in := bufio.NewReader(c)
	resp, err := http.ReadResponse(in, nil)
	return c, in, resp, err
}

// events carries an event stream to its end.
func (d *day) events(begun func()) error {
	c, _, resp, err := d.dial("GET /events HTTP/1.1\r\nHost: h\r\n\r\n")
	if c != nil {
		defer c.Close()
	}
	if err != nil {
		return err
	}
	begun()
	text, err := io.ReadAll(resp.Body)
	if err == nil && !strings.HasSuffix(string(text), "data: [DONE]\n\n") {
		err = fmt.Errorf("ended after %q", tail(string(text)))
	}
	return err
}

// socket carries a WebSocket, which asks and hears an answer, until the day is over.
func (d *day) socket(begun func()) error {
	c, in, resp, err := d.dial("GET /socket HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	if c != nil {
		defer c.Close()
	}
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		return fmt.Errorf("no tunnel: %v, %w", resp, errors.Join(err, io.ErrUnexpectedEOF))
	}
	begun()
	tick := time.NewTicker(beat)
	defer tick.Stop()
	frame := make([]byte, 2)
	for last := false; !last; {
		ask := []byte{0x81, 0x80, 0, 0, 0, 0}
		select {
		case <-tick.C:
		case <-d.over:
			ask[0], last = 0x88, true
		}
		if _, err := c.Write(ask); err != nil {
			return err
		}
		if _, err := io.ReadFull(in, frame); err != nil || frame[0] != ask[0] {
			return fmt.Errorf("an answer of %x: %w", frame, errors.Join(err, io.ErrUnexpectedEOF))
		}
	}
	if n, err := in.Read(frame); err != io.EOF {
		return fmt.Errorf("%d bytes behind the close frame, %w", n, err)
	}
	return nil
}

// pass sends requests one after the other, on one connection while it lasts.
func (d *day) pass(ctx context.Context) {
	client := &http.Client{Transport: &http.Transport{}, Timeout: time.Minute}
	defer client.CloseIdleConnections()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for ctx.Err() == nil {
		<-tick.C
		resp, err := client.Get("http://" + d.proxy + "/")
		if err != nil {
			d.t.Errorf("a request while the configuration changes: %v", err)
			return
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != 200 {
			d.t.Errorf("a request while the configuration changes: %d, %v", resp.StatusCode, err)
		}
		resp.Body.Close()
	}
}
