package transport

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

const (
	feedBeat   = time.Second           // a silent feed says so this often
	feedLost   = 4 * feedBeat          // without a word, its reader opens it anew
	feedRest   = 50 * time.Millisecond // after a feed that broke; doubles, with jitter
	feedRestTo = 2 * time.Second
	maxMessage = 1 << 20 // bytes
)

// Feed is the sending end of one open feed.
type Feed struct {
	out  *outbox
	sent uint64 // the owner's: Send is for one goroutine at a time
}

// Send queues a message and never waits. ErrSlow says that the reader does not
// keep up; the feed should end, and its reader will open it anew.
func (f *Feed) Send(message []byte) error {
	if len(message) > maxMessage {
		return &sizeError{len(message), maxMessage}
	}
	f.sent++
	err := f.out.put(frame{tag: tagMessage, id: f.sent, body: message})
	if errors.Is(err, errFull) {
		return ErrSlow
	}
	return err
}

// serveFeed runs one feed from its opening message to its end.
func (t *Transport) serveFeed(c *conn, s *service) {
	defer func() { _ = c.Close() }()
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	default:
		_, _ = c.Write(frame{tag: tagRefused, time: uint32(RefusedBusy), body: fmt.Appendf(nil, "%d feeds are open, which is the limit", s.Concurrent)}.append(nil))
		return
	}
	r := bufio.NewReader(c)
	_ = c.SetReadDeadline(time.Now().Add(greetTime))
	opening, err := readFrame(r, s.MaxQuestion)
	if err != nil || opening.tag != tagOpen {
		t.log.Warn("a feed was not opened", "peer", c.node, "service", s.name, "err", err)
		return
	}
	_ = c.SetReadDeadline(time.Time{})
	out := newOutbox(c)
	defer out.end(ErrStopped)
	ctx, cancel := context.WithCancel(t.ctx)
	defer cancel()
	ok := t.start(out.writeLoop) && t.start(func() {
		_, _ = r.ReadByte() // nothing is due: it returns when the reader leaves
		_ = c.Close()
		cancel()
	}) && t.start(func() { beatLoop(ctx, out) })
	if !ok {
		return
	}
	err = s.Feed(ctx, c.node, opening.body, &Feed{out: out})
	if err != nil && ctx.Err() == nil {
		t.log.Info("a feed ended", "peer", c.node, "service", s.name, "err", err)
	}
}

func beatLoop(ctx context.Context, out *outbox) {
	tick := time.NewTicker(feedBeat)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			_ = out.put(frame{tag: tagBeat}) // where that does not fit, there is news enough
		}
	}
}

// Reader is the receiving end of a feed.
type Reader struct {
	Open func() []byte              // the opening message, each time the feed is opened: from where to go on
	Take func(message []byte) error // each message, in order; an error opens the feed anew
	Lost func(err error)            // the feed broke, or could not be opened; may be nil
}

// Follow keeps a feed of a node open until ctx ends.
func (t *Transport) Follow(ctx context.Context, node, service string, r Reader) {
	rest := feedRest
	for ctx.Err() == nil && t.ctx.Err() == nil {
		began := time.Now()
		err := t.follow(ctx, node, service, r)
		if r.Lost != nil && ctx.Err() == nil {
			r.Lost(err)
		}
		if time.Since(began) > feedLost {
			rest = feedRest // it had worked
		}
		select {
		case <-time.After(rest/2 + rand.N(rest)):
		case <-ctx.Done():
		case <-t.ctx.Done():
		}
		rest = min(2*rest, feedRestTo)
	}
}

// follow opens the feed once and reads it to its end.
func (t *Transport) follow(ctx context.Context, node, service string, to Reader) error {
	hail, cancel := context.WithTimeout(ctx, greetTime)
	defer cancel()
	c, err := t.dial(hail, node, hello{kind: kindFeed, service: service})
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	_ = c.SetDeadline(time.Now().Add(feedLost))
	if _, err := c.Write(frame{tag: tagOpen, body: to.Open()}.append(nil)); err != nil {
		return err
	}
	r := bufio.NewReader(c)
	for last := uint64(0); ; {
		_ = c.SetReadDeadline(time.Now().Add(feedLost))
		f, err := readFrame(r, maxMessage)
		switch {
		case err != nil:
			return err
		case f.tag == tagBeat:
			continue
		case f.tag == tagRefused:
			return &RefusedError{Code(f.time), string(f.body)}
		case f.tag != tagMessage || f.id != last+1:
			return fmt.Errorf("feed %s of node %s: tag %d number %d after %d", service, node, f.tag, f.id, last)
		}
		last = f.id
		if err := to.Take(f.body); err != nil {
			return err
		}
	}
}
