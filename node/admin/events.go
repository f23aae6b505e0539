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

// events streams every change of state from now on, as server-sent events.
func (s *Server) events(c *call) error {
	c.Response.Header.SetContentType("text/event-stream")
	if c.IsHead() {
		return nil
	}
	conn, feed := c.Conn(), s.opt.Node.Events()
	c.SetBodyStreamWriter(func(w *bufio.Writer) {
		defer feed.Close()
		put := func(format string, args ...any) bool {
			if conn.SetWriteDeadline(time.Now().Add(writeTimeout)) != nil {
				return false
			}
			_, _ = fmt.Fprintf(w, format, args...) // Flush says how it went
			return w.Flush() == nil
		}
		for ok := put(": each event is one change; GET /v1/backends has the states it starts from\n\n"); ok; {
			ok = s.feed(feed, put)
		}
	})
	return nil
}

// feed puts the next events, or a sign of life; false when it is over.
func (s *Server) feed(f Feed, put func(string, ...any) bool) bool {
	ctx, cancel := context.WithTimeout(s.ctx, eventsPing)
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
		if !put("event: %s\ndata: %s\n\n", e.Kind, text) {
			return false
		}
	}
	return true
}
