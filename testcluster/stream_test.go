package testcluster_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/starling-lb/starling/proxy/backend"
	"github.com/starling-lb/starling/testcluster"
)

const (
	pacedEvents = 200
	pace        = 20 * time.Millisecond
	sseHead     = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
	askStream   = "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n"
)

// paced is a backend that sends each event at the same moment to all of a
// number of clients: what one of them gets later than another was added on its
// way.
type paced struct {
	joined chan chan string
}

func (p *paced) serve(c *net.TCPConn, in *bufio.Reader) {
	if _, _, err := readHead(in); err != nil {
		return
	}
	io.WriteString(c, sseHead)
	events := make(chan string, pacedEvents)
	p.joined <- events
	for e := range events {
		fmt.Fprintf(c, "%x\r\n%s\r\n", len(e), e)
	}
	io.WriteString(c, "0\r\n\r\n")
}

func (p *paced) send(clients []chan string) {
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for i := range pacedEvents {
		<-tick.C
		for _, c := range clients {
			c <- fmt.Sprintf("data: %d\n\n", i)
		}
	}
	for _, c := range clients {
		close(c)
	}
}

// piece is what one read returned.
type piece struct {
	at   time.Time
	text string
}

// pieces reads until the last chunk.
func pieces(c net.Conn) (all []piece, err error) {
	buf := make([]byte, 64<<10)
	for {
		n, err := c.Read(buf)
		if n > 0 {
			all = append(all, piece{time.Now(), string(buf[:n])})
		}
		if err != nil || bytes.HasSuffix(buf[:n], []byte("0\r\n\r\n")) {
			return all, err
		}
	}
}

// arrivals is when each event came.
func arrivals(all []piece) (at []time.Time) {
	for _, p := range all {
		for range strings.Count(p.text, "data: ") {
			at = append(at, p.at)
		}
	}
	return at
}

func TestEventsComeOneByOneAndAtOnce(t *testing.T) {
	inTime(t, "what starling adds to an event's way, the 99th percentile", 5*time.Millisecond*raceFactor, func() time.Duration { return addedDelay(t) })
}

// addedDelay is how much later than direct ones the events of a stream come through
// starling, the 99th percentile.
func addedDelay(t *testing.T) time.Duration {
	t.Helper()
	p := &paced{joined: make(chan chan string)}
	at := newOrigin(t, "paced", p.serve)
	n := startNode(t, testcluster.Options{}, nil, at)

	through := dialNode(t, n)
	direct, err := net.Dial("tcp", at.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer direct.Close()
	direct.SetDeadline(time.Now().Add(patience))
	var clients []chan string
	for _, c := range []net.Conn{through, direct} {
		send(t, c, askStream)
		clients = append(clients, await(t, "the backend has the request", p.joined))
	}
	// The head is there though no event has been sent.
	head := make([]byte, 64<<10)
	for _, c := range []net.Conn{through, direct} {
		n, err := c.Read(head)
		if text := string(head[:n]); err != nil || !strings.HasPrefix(text, "HTTP/1.1 200 OK\r\n") || !strings.HasSuffix(text, "\r\n\r\n") || strings.Contains(text, "data:") {
			t.Fatalf("before the first event: %q, %v; want a whole head", text, err)
		}
	}
	type reading struct {
		all []piece
		err error
	}
	got := make([]chan reading, 2)
	for i, c := range []net.Conn{through, direct} {
		got[i] = make(chan reading, 1)
		go func() { all, err := pieces(c); got[i] <- reading{all, err} }()
	}
	p.send(clients)
	ours, theirs := await(t, "the stream's end", got[0]), await(t, "the direct stream's end", got[1])
	if err := errors.Join(ours.err, theirs.err); err != nil {
		t.Fatal(err)
	}
	if len(ours.all) < 198 {
		t.Errorf("%d events came in %d pieces, want at least 198", pacedEvents, len(ours.all))
	}
	a, b := arrivals(ours.all), arrivals(theirs.all)
	if len(a) != pacedEvents || len(b) != pacedEvents {
		t.Fatalf("%d events through starling, %d direct, want %d", len(a), len(b), pacedEvents)
	}
	added := make([]time.Duration, pacedEvents)
	for i := range added {
		added[i] = a[i].Sub(b[i])
	}
	slices.Sort(added)
	t.Logf("added delay: p50 %v p99 %v max %v", added[pacedEvents/2], added[pacedEvents*99/100-1], added[pacedEvents-1])
	return added[pacedEvents*99/100-1]
}

// TestBrokenAnswerLooksBroken: a backend that resets after five events.
func TestBrokenAnswerLooksBroken(t *testing.T) {
	const event = "data: 12345\n\n"
	for _, tc := range []struct {
		name, head string
		frame      func(string) string
		broken     func(rest string, err error) bool // whether a client can tell
	}{
		{"chunked", "Transfer-Encoding: chunked\r\n", func(e string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(e), e) },
			func(rest string, err error) bool { return rest == "" && err != nil }},
		{"content length", fmt.Sprintf("Content-Length: %d\r\n", 10*len(event)), func(e string) string { return e },
			func(rest string, err error) bool { return rest == "" && err != nil }},
		{"close-delimited", "", func(e string) string { return e },
			func(rest string, err error) bool { return rest == "" && errors.Is(err, syscall.ECONNRESET) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			five := strings.Repeat(tc.frame(event), 5)
			seen := make(chan struct{})
			n := startNode(t, testcluster.Options{}, nil, newOrigin(t, "b1", func(c *net.TCPConn, in *bufio.Reader) {
				if _, _, err := readHead(in); err != nil {
					return
				}
				io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"+tc.head+"\r\n"+five)
				<-seen
				c.SetLinger(0)
			}))
			release := func() { close(seen) }
			t.Cleanup(func() { release() })
			c := dialNode(t, n)
			send(t, c, askStream)
			in := bufio.NewReader(c)
			if head, _, err := readHead(in); err != nil || !strings.HasPrefix(head, "HTTP/1.1 200") {
				t.Fatalf("head %q, %v", head, err)
			}
			got := make([]byte, len(five))
			if _, err := io.ReadFull(in, got); err != nil || string(got) != five {
				t.Fatalf("five events: %q, %v; want %q", got, err, five)
			}
			release()
			release = func() {}
			rest, err := untilEnd(in)
			if !tc.broken(rest, err) {
				t.Errorf("the end looks clean: then came %q and %v", rest, err)
			}
			eventually(t, patience, func() string {
				if got := metrics(t, n, "starling_streams_total", reason(backend.BackendBroke)); got != 1 {
					return fmt.Sprintf("%v streams ended with backend_broke, want 1", got)
				}
				return ""
			})
		})
	}
}

// untilEnd tells how the connection ends; io.EOF is an end without a reset.
func untilEnd(in io.Reader) (string, error) {
	rest, err := io.ReadAll(in)
	if err == nil {
		err = io.EOF
	}
	return string(rest), err
}
