package llm

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memory is a listener of pipes, so that a server can run in synctest's time.
type memory struct {
	mu    sync.Mutex
	ports map[string]*port
}

type port struct {
	m      *memory
	addr   memAddr
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

type memAddr string

func (a memAddr) Network() string { return "memory" }
func (a memAddr) String() string  { return string(a) }

func (m *memory) listen(_ context.Context, _, addr string) (net.Listener, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ports == nil {
		m.ports = map[string]*port{}
	}
	if strings.HasSuffix(addr, ":0") {
		addr = fmt.Sprintf("memory:%d", len(m.ports)+1)
	}
	p := &port{m: m, addr: memAddr(addr), conns: make(chan net.Conn), closed: make(chan struct{})}
	m.ports[addr] = p
	return p, nil
}

func (m *memory) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	m.mu.Lock()
	p := m.ports[addr]
	m.mu.Unlock()
	near, far := net.Pipe()
	select {
	case <-p.closed:
		return nil, errors.New("refused")
	case p.conns <- far:
		return near, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p *port) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *port) Close() error   { p.once.Do(func() { close(p.closed) }); return nil }
func (p *port) Addr() net.Addr { return p.addr }

// user is a server and a client of it.
type user struct {
	*Server
	t      *testing.T
	client *http.Client
}

func serve(t *testing.T, o Options) *user {
	t.Helper()
	return newUser(t, ForTest(t, o), new(net.Dialer).DialContext)
}

// serveIn is serve inside a synctest bubble.
func serveIn(t *testing.T, o Options) *user {
	t.Helper()
	m := new(memory)
	o.Listen = m.listen
	return newUser(t, ForTest(t, o), m.dial)
}

func newUser(t *testing.T, s *Server, dial func(context.Context, string, string) (net.Conn, error)) *user {
	tr := &http.Transport{DialContext: dial}
	t.Cleanup(tr.CloseIdleConnections)
	return &user{s, t, &http.Client{Transport: tr}}
}

// ask sends a request; headers come in pairs.
func (u *user) ask(ctx context.Context, method, url, body string, headers ...string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		u.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	return u.client.Do(req)
}

// get reads an answer whole.
func (u *user) get(method, url, body string, headers ...string) (int, http.Header, string) {
	u.t.Helper()
	resp, err := u.ask(u.t.Context(), method, url, body, headers...)
	if err != nil {
		u.t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		u.t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(raw)
}

// stream is a streamed answer: its data lines and when each came.
type stream struct {
	events []string
	at     []time.Time
	err    error // how it ended; nil after [DONE]
}

func (u *user) stream(ctx context.Context, body string, headers ...string) stream {
	u.t.Helper()
	return u.streamAt(ctx, "/v1/chat/completions", body, headers...)
}

func (u *user) streamAt(ctx context.Context, path, body string, headers ...string) (st stream) {
	u.t.Helper()
	resp, err := u.ask(ctx, "POST", u.URL()+path, body, headers...)
	if err != nil {
		return stream{err: err}
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		raw, _ := io.ReadAll(resp.Body)
		return stream{err: fmt.Errorf("status %d: %s", resp.StatusCode, raw)}
	}
	in := bufio.NewReader(resp.Body)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF // no [DONE]
			}
			st.err = err
			return st
		}
		data, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "data: ")
		switch {
		case data == "[DONE]":
			io.Copy(io.Discard, in)
			return st
		case ok:
			st.events = append(st.events, data)
			st.at = append(st.at, time.Now())
		}
	}
}

func chat(tokens int) string {
	return fmt.Sprintf(`{"messages":[{"role":"user","content":"hello"}],"stream":true,"max_tokens":%d}`, tokens)
}

// eventually waits on a condition of another goroutine, and says what it last
// was when it gives up.
func eventually(t *testing.T, what func() error) {
	t.Helper()
	deadline := time.After(10 * time.Second)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		err := what()
		if err == nil {
			return
		}
		select {
		case <-deadline:
			t.Fatal(err)
		case <-tick.C:
		}
	}
}

// turn waits for turn number n to be on record.
func (u *user) turn(n int) Turn {
	u.t.Helper()
	var got Turn
	eventually(u.t, func() error {
		turns, _ := u.Turns(uint64(n) - 1)
		if len(turns) == 0 {
			return fmt.Errorf("turn %d is not on record", n)
		}
		got = turns[0]
		return nil
	})
	return got
}

func decode[T any](t *testing.T, raw string) T {
	t.Helper()
	var v T
	d := json.NewDecoder(bytes.NewBufferString(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%v in %s", err, raw)
	}
	return v
}
