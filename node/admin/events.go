package admin

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/starling-lb/starling/node/api"
)

// eventsPing is the time between two signs of life where nothing happens: a
// client that is gone is noticed by them.
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
	conn := c.Conn()
	c.SetBodyStreamWriter(func(w *bufio.Writer) {
		defer feed.Close()
		put := func(format string, args ...any) bool {
			if conn.SetWriteDeadline(time.Now().Add(s.http.WriteTimeout)) != nil {
				return false
			}
			_, _ = fmt.Fprintf(w, format, args...) // Flush says how it went
			return w.Flush() == nil
		}
		past, cancel := context.WithCancel(s.ctx)
		cancel()
		if !put(": each event is one change; GET /v1/backends has the states it starts from\n\n") || !s.feed(past, feed, put) {
			return
		}
		for ok := put(": live\n\n"); ok; {
			ok = s.feed(s.ctx, feed, put)
		}
	})
	return nil
}

// feed puts the next events, or a sign of life; with a context that has ended, what
// there is. It is false when it is over.
func (s *Server) feed(ctx context.Context, f Feed, put func(string, ...any) bool) bool {
	ctx, cancel := context.WithTimeout(ctx, eventsPing)
	defer cancel()
	list, err := f.Next(ctx)
	switch {
	case s.ctx.Err() != nil:
		return false
	case err != nil:
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
