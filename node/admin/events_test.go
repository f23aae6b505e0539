package admin

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/starling-lb/starling/node/api"
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
	return c, followOver(t, c)
}

// followOver is follow over a connection that is made.
func followOver(t *testing.T, c net.Conn) *bufio.Reader {
	t.Helper()
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
	return in
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
		{api.Event{Kind: api.StateEvent, Pool: "llm", Backend: "b1", From: "active", To: "ejected", Reason: "5 failures"}, `"backend":"b1","from":"active","to":"ejected","reason":"5 failures"}`},
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

// A client's place is free as soon as the client has left, though nothing happens
// that would have to be written to it.
func TestWhoLeavesEventsGivesItsPlaceBack(t *testing.T) {
	for name, leave := range map[string]func(net.Conn) error{
		"closes":         net.Conn.Close,
		"sends no more":  func(c net.Conn) error { return c.(interface{ CloseWrite() error }).CloseWrite() },
		"talks too much": func(c net.Conn) error { _, err := c.Write(make([]byte, maxHeader)); return err },
	} {
		for _, secure := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, TLS %v", name, secure), func(t *testing.T) {
				t.Parallel()
				leaveEvents(t, leave, secure)
			})
		}
	}
}

func leaveEvents(t *testing.T, leave func(net.Conn) error, secure bool) {
	r := newRig()
	r.node.feed = fakeFeed{make(chan api.Event), make(chan struct{})}
	var roots *x509.CertPool
	if secure {
		r.cfg.TLS.CertFile, r.cfg.TLS.KeyFile, roots = certificate(t)
	}
	c, err := net.Dial("tcp", r.start(t).Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if secure {
		c = tls.Client(c, &tls.Config{RootCAs: roots, ServerName: "127.0.0.1"})
	}
	in := followOver(t, c)
	if _, err := c.Write([]byte("GET /healthz HTTP/1.1\r\n\r\n")); err != nil { // what no stream is ended for
		t.Fatal(err)
	}
	readUntil(t, in, ": live\n")
	r.node.feed.events <- api.Event{Kind: api.StateEvent}
	readUntil(t, in, "data: ")
	if err := leave(c); err != nil {
		t.Fatal(err)
	}
	select {
	case <-r.node.feed.closed:
	case <-time.After(eventsPing / 2): // before the next sign of life could show it
		t.Fatal("its place is kept")
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

// Where to begin is the node's to know: the handler passes on what was asked.
func TestWhereEventsBegin(t *testing.T) {
	r := newRig()
	r.node.feed = fakeFeed{make(chan api.Event), make(chan struct{})}
	r.node.refusal = refuse(BadRequest, "no")
	s := r.start(t)
	for _, c := range []struct{ request, field, want string }{
		{"GET /v1/events", "X: y", " 0"},
		{"GET /v1/events?recent=20", "X: y", " 20"},
		{"GET /v1/events?recent=1000", "Last-Event-ID: 5f0c1e9a-17", "5f0c1e9a-17 1000"},
	} {
		ask(t, s, c.request, c.field).wantError(t, BadRequest, "no")
		if r.node.followed != c.want {
			t.Errorf("%s: asked for %q, want %q", c.request, r.node.followed, c.want)
		}
	}
	ask(t, s, "GET /v1/events?recent=1001").wantError(t, BadRequest, "0 to 1000")
}

// An id goes out with its event, and none with what was lost.
func TestEventsHaveIDs(t *testing.T) {
	r := newRig()
	r.node.feed = fakeFeed{make(chan api.Event), make(chan struct{})}
	s := r.start(t)
	_, in := follow(t, s)
	readUntil(t, in, ": live\n")
	r.node.feed.events <- api.Event{Kind: api.StateEvent, ID: "a-1"}
	if text := readUntil(t, in, "data: "); !strings.Contains(text, "\nid: a-1\nevent: state\ndata: {\"id\":\"a-1\",\"kind\":\"state\",\"time\":\"0001-01-01T00:00:00Z\"}\n") {
		t.Errorf("got %q", text)
	}
	r.node.feed.events <- api.Event{Kind: api.LostEvent, Lost: 2}
	if text := readUntil(t, in, "data: "); strings.Contains(text, "id:") || !strings.Contains(text, "\nevent: lost\n") {
		t.Errorf("got %q", text)
	}
}

// What operators do is an event, whoever they are; a session's key is not told.
func TestOrdersAreNoted(t *testing.T) {
	r := newRig()
	s := r.start(t)
	for _, c := range []struct{ method, path, body string }{
		{"POST", "/v1/backends/b1/drain", ""},
		{"POST", "/v1/pools/llm/policy", `{"policy":"random"}`},
		{"POST", "/v1/sessions/llm/private/move", `{"backend":"b2"}`},
		{"POST", "/v1/keys/use", `{"key":"c2VjcmV0"}`},
	} {
		if status, text := post(t, s, c.method, c.path, c.body); status != 200 {
			t.Errorf("%s: %d %s", c.path, status, text)
		}
	}
	want := []string{"drain backend, backend b1", "set policy, pool llm, policy random, share 0", "move session, pool llm, backend b2", "use a gossip key"}
	if got := strings.Join(r.node.ordered, "; "); got != strings.Join(want, "; ") {
		t.Errorf("noted %s", got)
	}
	r.node.refusal = refuse(Conflict, "no")
	if status, _ := post(t, s, "POST", "/v1/backends/b1/drain", ""); status != 409 || len(r.node.ordered) != len(want) {
		t.Errorf("what was refused: status %d, noted %v", status, r.node.ordered[len(want):])
	}
}

// A reader that takes nothing is cut off, and its place is given back.
func TestReaderThatTakesNothing(t *testing.T) {
	r := newRig()
	r.node.feed = fakeFeed{make(chan api.Event), make(chan struct{})}
	r.tune = func(s *Server) { s.http.WriteTimeout = 200 * time.Millisecond }
	s := r.start(t)
	follow(t, s)
	much := api.Event{Kind: api.StateEvent, Reason: strings.Repeat("x", 256<<10)}
	for {
		select {
		case r.node.feed.events <- much:
		case <-r.node.feed.closed:
			return
		case <-time.After(20 * time.Second):
			t.Fatal("it is waited for")
		}
	}
}
