package admin

import (
	"bufio"
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/starling-lb/starling/node/api"
	"github.com/starling-lb/starling/proxy/backend"
)

// fakeFeed gives what its test puts in, and tells of its end.
type fakeFeed struct {
	events chan api.Event
	closed chan struct{}
}

func (f fakeFeed) Next(ctx context.Context) ([]api.Event, error) {
	select {
	case e := <-f.events:
		return []api.Event{e}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (f fakeFeed) Close() { close(f.closed) }

// follow asks for events and reads up to the end of the head.
func follow(t *testing.T, s *Server) (net.Conn, *bufio.Reader) {
	t.Helper()
	c, err := net.Dial("tcp", s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write([]byte("GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(c)
	if head := readUntil(t, in, "/v1/backends has"); !strings.Contains(head, "text/event-stream") {
		t.Fatalf("head %q", head)
	}
	return c, in
}

func readUntil(t *testing.T, in *bufio.Reader, word string) (text string) {
	t.Helper()
	for !strings.Contains(text, word) {
		line, err := in.ReadString('\n')
		if text += line; err != nil {
			t.Fatalf("no %q in %q: %v", word, text, err)
		}
	}
	return text
}

func TestEventsAreStreamed(t *testing.T) {
	r := newRig()
	r.node.feed = fakeFeed{make(chan api.Event), make(chan struct{})}
	s := r.start(t)
	c, in := follow(t, s)
	for _, e := range []struct {
		api.Event
		want string
	}{
		{api.Event{Kind: api.StateEvent, Pool: "llm", Backend: "b1", From: backend.Active, To: backend.Ejected, Reason: "5 failures"}, `"backend":"b1","from":"active","to":"ejected","reason":"5 failures"}`},
		{api.Event{Kind: api.PanicEvent, Pool: "llm", Panic: true}, `"pool":"llm","panic":true}`},
		{api.Event{Kind: api.LostEvent, Lost: 3}, `"lost":3}`},
	} {
		r.node.feed.events <- e.Event
		if text := readUntil(t, in, e.want); !strings.Contains(text, "event: "+string(e.Kind)+"\ndata: {") {
			t.Errorf("got %q", text)
		}
	}
	c.Close()
	for gone := false; !gone; { // the next writes show that nobody reads
		select {
		case r.node.feed.events <- api.Event{Kind: api.StateEvent}:
		case <-r.node.feed.closed:
			gone = true
		case <-time.After(20 * time.Second):
			t.Fatal("the feed of a client that left goes on")
		}
	}
}

func TestStopEndsEvents(t *testing.T) {
	r := newRig()
	r.node.feed = fakeFeed{make(chan api.Event), make(chan struct{})}
	s := r.start(t)
	follow(t, s)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := s.Stop(ctx); err != nil {
		t.Error(err)
	}
	select {
	case <-r.node.feed.closed:
	default:
		t.Error("the feed goes on after Stop")
	}
}
