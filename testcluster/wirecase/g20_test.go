package wirecase

import (
	"context"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/starling-lb/starling/node"
	"github.com/starling-lb/starling/proxy"
)

const (
	grace  = 3 * time.Second        // the report has 10 s
	slack  = 5 * time.Second        // of a machine that does much else
	echoed = 100 * time.Millisecond // from one frame to the next; the report has 500 ms
)

// G20: a stop cut WebSockets at once, or waited for them for ever
// (github.com/traefik/traefik/issues/3630). The process's exit code says that
// the deadline cut a stream, as its contract has it; the report wants 0.
func TestG20StopWithOpenWebSockets(t *testing.T) {
	t.Parallel()
	for _, l := range []struct {
		name string
		opt  node.Options
	}{{"edges", node.Options{}}, {"portable", node.Options{Dial: dialPlain, Listen: listenPlain}}} {
		t.Run(l.name+"/to the deadline", func(t *testing.T) {
			t.Parallel()
			w := openWebSocket(t, l.opt)
			began, stopped := time.Now(), w.stop(grace)
			w.echo(2)
			m := w.ask(get("/"))
			if m.Status != 503 || strings.Join(m.Lines("X-Starling-Error"), "") != "draining" || len(m.Lines("Retry-After")) != 1 {
				t.Errorf("a new request got %d %v", m.Status, m.Fields)
			}
			frames := 2 + w.echo(100)
			if took := time.Since(began); took < grace {
				t.Errorf("the WebSocket ended after %v, %d frames", took, frames)
			}
			if got := string(w.c.Seen().After101[frames*len(frame):]); got != "\x88\x02\x03\xe9" {
				t.Errorf("after %d frames came %q, want a close frame with 1001", frames, got)
			}
			w.untilEnd(w.c)
			w.c.Close()
			w.ended(began.Add(grace+slack), stopped, proxy.Report{Cut: 1})
		})
		t.Run(l.name+"/the client ends first", func(t *testing.T) {
			t.Parallel()
			w := openWebSocket(t, l.opt)
			stopped := w.stop(patience)
			w.echo(4)
			w.c.Close()
			w.ended(time.Now().Add(slack), stopped, proxy.Report{Finished: 1})
		})
	}
}

const frame = "\x81\x85\x01\x02\x03\x04igoho" // masked, text

// openSocket is a client of a WebSocket that echoes, and the node between.
type openSocket struct {
	*rig
	node *node.Node
	c    *Client
	got  int // frames that came back
}

func openWebSocket(t *testing.T, opt node.Options) *openSocket {
	b, _ := answering(t, func(c *Conn, _ *Message) bool {
		_ = c.Send("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n")
		buf := make([]byte, len(frame))
		for n, err := c.r.Read(buf); err == nil && buf[0] != 0x88 && c.Send(string(buf[:n])) == nil; n, err = c.r.Read(buf) {
		}
		return false
	})
	config := setup{backends: []string{b.Addr()}}.yaml(t.TempDir())
	cfg, err := node.Parse("g20.yaml", []byte(config), os.LookupEnv)
	if err != nil {
		t.Fatal(err)
	}
	opt.Logger = slog.New(slog.DiscardHandler)
	n, err := node.New(cfg, opt)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	w := &openSocket{rig: &rig{running: running{n.ProxyAddrs()[0], n.AdminAddr()}, t: t, ctx: deadline(t)}, node: n}
	w.c = w.dial()
	w.next(w.c, get("/ws", "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="), 1)
	return w
}

// stop has the node drain, as at SIGTERM.
func (w *openSocket) stop(within time.Duration) <-chan error {
	stopped := make(chan error, 1)
	ctx, cancel := context.WithTimeout(w.ctx, within)
	go func() {
		defer cancel()
		stopped <- w.node.Stop(ctx)
	}()
	return stopped
}

// echo sends so many frames, one by one, or until the WebSocket ends, and tells
// how many came back.
func (w *openSocket) echo(n int) (back int) {
	w.t.Helper()
	for ; back < n && pause(w.ctx, echoed); back++ {
		if w.c.Send(frame) != nil {
			return back
		}
		want := strings.Repeat(frame, w.got+1)
		w.within(w.c, func(s Seen) bool { return len(s.After101) >= len(want) || s.Ended != "" })
		if !strings.HasPrefix(string(w.c.Seen().After101), want) {
			return back
		}
		w.got++
	}
	return back
}

// ended checks how and by when the node has stopped.
func (w *openSocket) ended(by time.Time, stopped <-chan error, want proxy.Report) {
	w.t.Helper()
	if err := <-stopped; err != nil {
		w.t.Error(err)
	}
	if late := time.Since(by); late > 0 {
		w.t.Errorf("the node stopped %v too late", late)
	}
	if got := w.node.Drained(); got != want {
		w.t.Errorf("the drain ended with %+v, want %+v", got, want)
	}
}
