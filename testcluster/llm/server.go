package llm

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Server is one demo backend.
type Server struct {
	opts    Options
	created time.Time
	engine  *engine
	turns   *ring
	metrics *metrics
	data    *front
	control *front

	tally
	switches
	life
}

// tally counts completions.
type tally struct {
	answers atomic.Uint64 // asked for; numbers them
	traced  atomic.Uint64 // rows of the trace that were used
	cutOff  atomic.Int64  // cut by Stop
}

// life is what Start begins and Stop ends.
type life struct {
	ctx   context.Context // ends when streams are cut
	cut   context.CancelFunc
	tasks sync.WaitGroup

	mu      sync.Mutex    // guards what follows
	started chan struct{} // not nil once Start began, closed when it is over
	stopped chan struct{} // the same of Stop
}

// New checks the options; it opens no socket and starts nothing.
func New(o Options) (*Server, error) {
	o.fill()
	if err := o.check(); err != nil {
		return nil, err
	}
	s := &Server{
		opts:    o,
		created: time.Now(),
		engine:  newEngine(o),
		turns:   &ring{limit: o.KeepTurns},
	}
	s.ctx, s.cut = context.WithCancel(context.Background())
	s.switches.off()
	s.metrics = newMetrics(s)
	s.data = newFront(s, o.Address, s.routes())
	s.control = newFront(s, o.Control, s.controlRoutes())
	return s, nil
}

// Start returns when both ports accept connections, or with everything undone.
// A server starts once.
func (s *Server) Start(ctx context.Context) error {
	s.mu.Lock()
	again := s.started != nil || s.stopped != nil
	if !again {
		s.started = make(chan struct{})
		defer close(s.started)
	}
	s.mu.Unlock()
	if again {
		return fmt.Errorf("start demo backend %s: it was started or stopped before; make a new one", s.opts.ID)
	}
	if err := errors.Join(s.data.open(ctx), s.control.open(ctx)); err != nil {
		s.data.close(s.ctx)
		s.control.close(s.ctx)
		return fmt.Errorf("start demo backend %s: %w", s.opts.ID, err)
	}
	s.start(s.ctx, s.engine.loop)
	s.start(s.noFaults, s.faultLoop)
	s.running.Store(true)
	return nil
}

func (s *Server) start(ctx context.Context, loop func(context.Context)) {
	s.tasks.Go(func() { loop(ctx) })
}

// Stop takes no new connection and lets streams run to their end; when ctx
// ends, or at once if the server is told to hang, it cuts them and its error
// says how many. After it nothing of the server runs. It may be called again,
// also to hurry a Stop under way.
func (s *Server) Stop(ctx context.Context) error {
	defer context.AfterFunc(ctx, s.cut)()
	s.mu.Lock()
	started, first := s.started, s.stopped == nil
	if first {
		s.stopped = make(chan struct{})
	}
	s.mu.Unlock()
	switch {
	case !first:
		<-s.stopped
	case started != nil:
		<-started
		s.shutdown()
		close(s.stopped)
	default:
		close(s.stopped)
	}
	if n := s.cutOff.Load(); n > 0 {
		return fmt.Errorf("stop demo backend %s: %d answers were cut", s.opts.ID, n)
	}
	return nil
}

// shutdown takes the switches away first, so that nothing opens the port again.
func (s *Server) shutdown() {
	s.running.Store(false)
	s.unfault()
	if s.faults.Load().Hang {
		s.cut() // what hangs would never end
	}
	s.data.close(s.ctx)
	s.control.close(s.ctx)
	s.cut()
	s.tasks.Wait()
}

// Addr is the data port's host:port; it stays the same while the port refuses.
func (s *Server) Addr() string { return s.data.address() }

// URL is the data port's base URL, without a slash at its end.
func (s *Server) URL() string { return "http://" + s.Addr() }

// ControlURL is the control API's base URL.
func (s *Server) ControlURL() string { return "http://" + s.control.address() }

// Turns are the turns that ended after the one with number seq, oldest first,
// and how many of these were too many to keep.
func (s *Server) Turns(seq uint64) (turns []Turn, lost uint64) { return s.turns.after(seq) }

// Forget makes every session cold, as a restart of the engine would.
func (s *Server) Forget() { s.engine.forget() }

// Status is what a backend says of itself on the control API.
type Status struct {
	ID       string `json:"id"`
	Model    string `json:"model"`
	URL      string `json:"url"`
	Up       bool   `json:"up"`      // the data port accepts connections
	Running  int    `json:"running"` // streams in the batch
	Waiting  int    `json:"waiting"` // streams behind it
	Sessions int    `json:"sessions"`
	Conns    int    `json:"conns"` // open connections of the data port
	Turns    uint64 `json:"turns"` // ended since the start
	Faults   Faults `json:"faults"`
}

// Status is the state of this moment.
func (s *Server) Status() Status {
	l := s.engine.load()
	up, conns := s.data.state()
	return Status{
		ID: s.opts.ID, Model: s.opts.Model, URL: s.URL(), Up: up, Conns: conns,
		Running: l.running, Waiting: l.waiting, Sessions: l.sessions,
		Turns: s.turns.count(), Faults: s.Faults(),
	}
}
