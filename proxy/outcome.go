package proxy

import (
	"fmt"
	"time"

	"github.com/starling-lb/starling/proxy/backend"
)

// headed tells the pool that the head of an answer came. One that says that
// the backend could not do its work is a failure of the backend's all the same,
// though the client gets it as it is.
func (s *Stream) headed(from time.Time, connecting time.Duration) {
	now := time.Now()
	s.headIn = max(1, now.Sub(s.started))
	switch status := s.client.resp.Status; {
	case status >= 502 && status <= 504:
		s.pool.Failed(&s.lease, now, backend.FailedGateway, fmt.Sprintf("it answered %d", status))
		return
	case status >= 400:
		s.pool.Erred(&s.lease, now)
		return
	}
	if sent := s.sentAt.Load(); sent != 0 {
		from, connecting = time.Unix(0, sent), 0
	}
	s.lease.Answered(now)
	s.pool.Succeeded(&s.lease, now, max(0, now.Sub(from)-connecting))
}

// asking is when the attempt that begins, and has its place, began to ask.
func (s *Stream) asking() time.Time {
	if s.attempts > 1 {
		return time.Now()
	}
	return s.started.Add(s.queued + s.client.bodyWait)
}

// kind is what the failure of an attempt says of the backend.
func (f *failure) kind() backend.FailureKind {
	switch {
	case f.code == backend.CodeRefused, f.timeout == "connect":
		return backend.FailedConnect
	case f.code == backend.CodeTimeout:
		return backend.FailedTimeout
	}
	return backend.FailedBroke
}

// ended tells the pool how an answer that had begun came to its end.
func (s *Stream) ended(b *backend.Backend, why backend.Reason, f *failure) {
	if b == nil || s.headIn == 0 {
		return
	}
	switch now := time.Now(); why {
	case backend.Done:
		if s.client.resp.Status < 400 { // an error is over at once
			s.pool.Finished(b, now.Sub(s.started))
		}
	case backend.BackendBroke:
		s.pool.Broke(b, now, f.message)
	case backend.Idle:
		switch {
		case f.timeout != "stream_idle": // a tunnel: nobody knows whose turn it was
		case s.client.down.Length > 0: // more was promised
			s.pool.Broke(b, now, f.message)
		default:
			s.pool.Froze(b, now, f.message)
		}
	}
}
