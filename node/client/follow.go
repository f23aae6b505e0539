package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/starling-lb/starling/node/api"
)

const (
	maxEvent = 1 << 20          // bytes of a line
	silence  = 45 * time.Second // a node says something at least every 15 s
)

// ErrSilent says that the node, or the way to it, is gone without a word.
var ErrSilent = errors.New("nothing came for too long")

// Follower is told of events.
type Follower struct {
	After  string            // an event's id, to go on behind it; "": the last few
	Recent int               // how many those are
	Take   func(e api.Event) // each, in order
	Live   func()            // what came before was past; nil: nobody wants to know
}

// Follow has f told of events until ctx ends or the node ends them.
func (c *Client) Follow(ctx context.Context, f Follower) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	req, err := c.request(ctx, http.MethodGet, nil, "events")
	if err != nil {
		return err
	}
	req.URL.RawQuery = "recent=" + strconv.Itoa(f.Recent)
	if f.After != "" {
		req.Header.Set("Last-Event-ID", f.After)
	}
	patient := c.http
	patient.Timeout = 0 // it lasts
	guard := time.AfterFunc(silence, func() { stop(ErrSilent) })
	defer guard.Stop()
	resp, err := patient.Do(req)
	if err != nil {
		return c.unreached(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return read(c.base, resp, nil)
	}
	in := bufio.NewScanner(resp.Body)
	in.Buffer(nil, maxEvent)
	for in.Scan() {
		guard.Reset(silence)
		if err := f.line(in.Bytes()); err != nil {
			return fmt.Errorf("the events of %s are not as expected (%w); is it a starling of another version?", c.base, err)
		}
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if err := in.Err(); err != nil {
		return fmt.Errorf("the events of %s broke off: %w", c.base, err)
	}
	return nil
}

// line takes one of a text/event-stream. A node's events have their data in one.
func (f Follower) line(text []byte) error {
	if string(text) == ": live" && f.Live != nil {
		f.Live()
	}
	data, ok := bytes.CutPrefix(text, []byte("data: "))
	if !ok {
		return nil
	}
	var e api.Event
	if err := json.Unmarshal(data, &e); err != nil {
		return err
	}
	f.Take(e)
	return nil
}
