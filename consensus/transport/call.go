package transport

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// lineKey names the one connection that carries all calls of a service to a node.
type lineKey struct{ node, service string }

// line is such a connection, dialed when it is first needed and again after it
// broke.
type line struct {
	t   *Transport
	key lineKey

	dialing chan struct{} // one place: who holds it dials, the others wait for it

	mu    sync.Mutex
	link  *link // nil: none
	asked uint64
}

// link is one life of a line's connection.
type link struct {
	out *outbox

	mu      sync.Mutex
	waiting map[uint64]chan<- frame // by id; each has one place
	broken  error
}

const (
	maxAnswer  = 4 << 20 // bytes
	maxWaiting = 4096    // questions without an answer, per line
)

// Call asks a service of a node, within ctx. An error that is ErrNotSent says
// that nothing was done; RemoteError and RefusedError are the other side's word;
// after any other the outcome is unknown.
func (t *Transport) Call(ctx context.Context, node, service string, question []byte) ([]byte, error) {
	a, err := t.line(lineKey{node, service}).call(ctx, question)
	if err != nil {
		return nil, fmt.Errorf("call %s of node %s: %w", service, node, err)
	}
	switch a.tag {
	case tagAnswer:
		return a.body, nil
	case tagRefused:
		return nil, fmt.Errorf("call %s of node %s: %w: %w", service, node, ErrNotSent, &RefusedError{Code(a.time), string(a.body)})
	}
	return nil, &RemoteError{node, service, string(a.body)}
}

func (t *Transport) line(key lineKey) *line {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.lines[key]
	if l == nil {
		l = &line{t: t, key: key, dialing: make(chan struct{}, 1)}
		t.lines[key] = l
	}
	return l
}

func (l *line) call(ctx context.Context, question []byte) (frame, error) {
	k, err := l.connect(ctx)
	if err != nil {
		return frame{}, errors.Join(ErrNotSent, err)
	}
	l.mu.Lock()
	l.asked++
	id := l.asked
	l.mu.Unlock()
	answer := make(chan frame, 1)
	if err := k.expect(id, answer); err != nil {
		return frame{}, errors.Join(ErrNotSent, err)
	}
	defer k.forget(id)
	ask := frame{tag: tagAsk, id: id, body: question}
	if end, ok := ctx.Deadline(); ok {
		ask.time = uint32(max(time.Until(end).Milliseconds(), 1))
	}
	if err := k.out.put(ask); err != nil {
		return frame{}, errors.Join(ErrNotSent, err)
	}
	select {
	case a, ok := <-answer:
		if !ok {
			return frame{}, fmt.Errorf("no answer: %w", k.why())
		}
		return a, nil
	case <-ctx.Done():
		return frame{}, fmt.Errorf("no answer: %w", context.Cause(ctx))
	}
}

// connect returns the link there is, or makes one; one caller dials for all.
func (l *line) connect(ctx context.Context) (*link, error) {
	if k := l.current(); k != nil {
		return k, nil
	}
	select {
	case l.dialing <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	defer func() { <-l.dialing }()
	if k := l.current(); k != nil {
		return k, nil
	}
	c, err := l.t.dial(ctx, l.key.node, hello{kind: kindCall, service: l.key.service})
	if err != nil {
		return nil, err
	}
	k := &link{out: newOutbox(c), waiting: make(map[uint64]chan<- frame)}
	if !l.t.start(func() { l.readLoop(k, c) }) || !l.t.start(k.out.writeLoop) {
		_ = c.Close()
		k.out.end(ErrStopped)
		return nil, ErrStopped
	}
	l.mu.Lock()
	l.link = k
	l.mu.Unlock()
	return k, nil
}

func (l *line) current() *link {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.link != nil && l.link.why() != nil {
		l.link = nil
	}
	return l.link
}

// readLoop hands answers to who waits for them, until the connection ends.
func (l *line) readLoop(k *link, c *conn) {
	r := bufio.NewReader(c)
	for {
		f, err := readFrame(r, maxAnswer)
		if err != nil {
			k.end(err)
			_ = c.Close()
			return
		}
		k.deliver(f)
	}
}

func (k *link) expect(id uint64, answer chan<- frame) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.broken != nil {
		return k.broken
	}
	if len(k.waiting) >= maxWaiting {
		return errFull
	}
	k.waiting[id] = answer
	return nil
}

func (k *link) forget(id uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.waiting, id)
}

func (k *link) deliver(f frame) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if w, ok := k.waiting[f.id]; ok {
		delete(k.waiting, f.id)
		w <- f // has a place
	}
}

func (k *link) end(err error) {
	k.out.end(err)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.broken = err
	for id, w := range k.waiting {
		delete(k.waiting, id)
		close(w)
	}
}

func (k *link) why() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.broken
}
