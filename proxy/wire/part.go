package wire

import "time"

// Finish reads on, after StopReading, and passes on what is missing of the
// WebSocket frame that is under way, and nothing of the next. It waits until
// by; the relay must have Frames and run no more.
func (r *Relay) Finish(by time.Time) error {
	r.From.ResumeReading()
	if r.Frames.AtBoundary() {
		return nil
	}
	f := &lastFrame{relay: r}
	if len(r.From.Buffered()) > 0 && f.take() {
		return f.err
	}
	if err := r.From.await(f, bound{by: by}); err != nil {
		return &SourceError{err}
	}
	return f.err
}

// lastFrame takes the rest of a frame.
type lastFrame struct {
	relay *Relay
	err   error
}

func (f *lastFrame) take() bool {
	r := f.relay
	p := r.From.Buffered()
	n, done, err := r.Frames.Scan(p)
	if err == nil {
		err = r.send(p[:n])
	}
	r.From.Discard(len(p)) // behind the last frame nothing is passed on
	f.err = err
	return done || err != nil
}

// Drop reads and drops what still comes, until the peer closes its sending
// side or by: a close with unread bytes would be a reset, and take with it what
// the peer has not read yet.
func (e *End) Drop(by time.Time) {
	e.Discard(len(e.Buffered()))
	_ = e.await(nothing{e}, bound{by: by})
}

type nothing struct{ from *End }

func (n nothing) take() bool {
	n.from.Discard(len(n.from.Buffered()))
	return false
}
