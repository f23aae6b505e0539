package proxy

import (
	"bytes"

	"github.com/starling-lb/starling/proxy/wire"
)

// An event stream that waits for its backend holds no goroutine: serve ends
// with the relay handed to the watcher, and goes on in resumed once the relay
// needs a goroutine again, at its end above all.

// later is who resumes the relay of the answer; nil where the answer is better
// carried by this goroutine to its end.
func (s *Stream) later() wire.Resumer {
	kind, _ := s.client.resp.Field("content-type")
	if s.uploaded != nil && !s.sent() || !bytes.HasPrefix(kind, []byte("text/event-stream")) {
		return nil
	}
	return s.client
}

// detach hands the stream to the watcher, with nothing but what its end needs.
// Nothing of the client may be touched after it.
func (c *client) detach() {
	if c.desk != nil {
		c.leaveDesk()
	}
	c.server.tasks.Add(1) // until resumed has ended
	c.down.Detach()
}

// Resume hears from the watcher that the stream needs a goroutine.
func (c *client) Resume() {
	go func() {
		defer c.server.tasks.Done()
		c.resumed()
	}()
}

func (c *client) resumed() {
	err := c.down.Continue()
	if err == wire.ErrDetached {
		c.detach()
		return
	}
	c.returnToDesk()
	if c.conclude(c.stream.finish(err)) {
		c.serve()
	} else {
		c.end()
	}
}
