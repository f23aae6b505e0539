package admin

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/starling-lb/starling/node/api"
)

// eventsPing is the time between two signs of life where nothing happens: a client
// that is gone without a word is noticed by them, and a proxy between keeps the stream.
const eventsPing = 15 * time.Second

// Feed is what a client that follows events reads from. Next waits for the
// next ones; Close ends it.
type Feed interface {
	Next(ctx context.Context) ([]api.Event, error)
	Close()
}

// maxRecent is how many past events may be asked for; more are not kept.
const maxRecent = 1000

// events streams every change of state from now on, or behind an event that the
// client knows, as server-sent events.
func (s *Server) events(c *call) error {
	last, err := c.number("recent", 0, 0, maxRecent)
	if err != nil {
		return err
	}
	if c.IsHead() {
		c.Response.Header.SetContentType("text/event-stream")
		return nil
	}
	feed, err := s.opt.Node.Events(string(c.Request.Header.Peek("Last-Event-ID")), last)
	if err != nil {
		return err
	}
	c.Response.Header.SetContentType("text/event-stream")
	c.SetConnectionClose() // attend reads what would be the next request
	conn := c.Conn()
	c.SetBodyStreamWriter(func(w *bufio.Writer) {
		defer feed.Close()
		life, end := s.attend(conn)
		defer end()
		put := func(format string, args ...any) bool {
			if life.Err() != nil || conn.SetWriteDeadline(time.Now().Add(s.http.WriteTimeout)) != nil {
				return false
			}
			_, _ = fmt.Fprintf(w, format, args...) // Flush says how it went
			return w.Flush() == nil
		}
		past, cancel := context.WithCancel(life)
		cancel()
		if !put(": each event is one change; GET /v1/backends has the states it starts from\n\n") || !feedOn(past, feed, put) {
			return
		}
		for ok := put(": live\n\n"); ok; {
			ok = feedOn(life, feed, put)
		}
	})
	return nil
}

// attend returns a context that ends as soon as the client leaves, or Stop begins, and
// what gives it up. A client has nothing more to say: a little is let pass, for some
// send a request ahead; who closes its sending side, or says more, has left.
func (s *Server) attend(conn net.Conn) (life context.Context, end func()) {
	life, leave := context.WithCancel(s.ctx)
	_ = conn.SetReadDeadline(time.Time{}) // was the request's; where it fails, reading does
	var reading sync.WaitGroup
	reading.Go(func() {
		defer leave()
		_, _ = io.CopyN(io.Discard, conn, maxHeader)
	})
	return life, func() {
		leave()
		_ = conn.SetReadDeadline(time.Unix(1, 0))
		reading.Wait()
	}
}

// feedOn puts the next events, or a sign of life; with a context that has ended, what
// there is. It is false when it is over.
func feedOn(ctx context.Context, f Feed, put func(string, ...any) bool) bool {
	ctx, cancel := context.WithTimeout(ctx, eventsPing)
	defer cancel()
	list, err := f.Next(ctx)
	if err != nil {
		return put(": nothing new\n\n")
	}
	for _, e := range list {
		text, err := json.Marshal(e)
		if err != nil {
			panic("BUG: an event that JSON cannot hold: " + err.Error())
		}
		id := "" // one that is lost changes nothing of where to go on
		if e.ID != "" {
			id = "id: " + e.ID + "\n"
		}
		if !put("%sevent: %s\ndata: %s\n\n", id, e.Kind, text) {
			return false
		}
	}
	return true
}
