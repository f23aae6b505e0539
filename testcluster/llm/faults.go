package llm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"sync/atomic"
	"time"
)

// Health says what /health and /healthz answer.
type Health string

// The health answers; the list is closed.
const (
	HealthAuto Health = ""     // as the rest: ok, or nothing while it hangs
	HealthOK   Health = "ok"   // ok even while all else hangs
	HealthFail Health = "fail" // 503
	HealthHang Health = "hang" // nothing
)

// Faults are the switches; the zero value is a backend in order. All of them
// may be on at once and be changed while streams run.
type Faults struct {
	Slow       float64 // every stream runs this many times slower; 0 and 1 are off
	Hang       bool    // connections are accepted, nothing is answered and no stream goes on, until it is lifted
	Refuse     bool    // the listener is closed; lifted, it opens on the same port
	CloseConns bool    // Refuse and Flap also reset the connections there are
	BreakAfter int     // the connection is reset once an answer has this many tokens; 0 is off

	// Flap refuses for the first half of every such period and serves for the
	// second; 0 is off.
	Flap        time.Duration
	Health      Health
	HealthDelay time.Duration // before health answers
}

// ErrFaults is what SetFaults wraps for values that make no sense.
var ErrFaults = errors.New("bad faults")

// ErrNotRunning is what SetFaults returns before Start and after Stop.
var ErrNotRunning = errors.New("the demo backend is not running")

func (f Faults) check() error {
	var errs []error
	wrong := func(bad bool, format string, v any) {
		if bad {
			errs = append(errs, fmt.Errorf("%w: "+format, ErrFaults, v))
		}
	}
	wrong(f.Slow < 0 || math.IsInf(f.Slow, 0) || math.IsNaN(f.Slow), "slow is %v, want 0 or a factor", f.Slow)
	wrong(f.BreakAfter < 0, "break_after is %v, want 0 or a number of tokens", f.BreakAfter)
	wrong(f.Flap < 0 || f.Flap > 0 && f.Flap < 10*time.Millisecond, "flap is %v, want 0 or at least 10ms", f.Flap)
	wrong(f.HealthDelay < 0, "health_delay is %v, want 0 or more", f.HealthDelay)
	switch f.Health {
	case HealthAuto, HealthOK, HealthFail, HealthHang:
	default:
		wrong(true, `health is %q, want "", "ok", "fail" or "hang"`, f.Health)
	}
	return errors.Join(errs...)
}

// faultsJSON is the form on the control API: durations are seconds.
type faultsJSON struct {
	Slow        float64 `json:"slow"`
	Hang        bool    `json:"hang"`
	Refuse      bool    `json:"refuse"`
	CloseConns  bool    `json:"close_conns"`
	BreakAfter  int     `json:"break_after"`
	Flap        float64 `json:"flap"`
	Health      Health  `json:"health"`
	HealthDelay float64 `json:"health_delay"`
}

// MarshalJSON gives durations as seconds.
func (f Faults) MarshalJSON() ([]byte, error) {
	return json.Marshal(f.form())
}

func (f Faults) form() faultsJSON {
	return faultsJSON{f.Slow, f.Hang, f.Refuse, f.CloseConns, f.BreakAfter, f.Flap.Seconds(), f.Health, f.HealthDelay.Seconds()}
}

func (j faultsJSON) faults() Faults {
	return Faults{j.Slow, j.Hang, j.Refuse, j.CloseConns, j.BreakAfter, seconds(j.Flap), j.Health, seconds(j.HealthDelay)}
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// inForce is the faults at one moment; a change makes a new one.
type inForce struct {
	Faults
	down    bool          // the flap's phase
	changed chan struct{} // closed when this is no longer in force
}

// switches are the faults and who changes them: faultLoop alone.
type switches struct {
	faults   atomic.Pointer[inForce]
	commands chan setFaults
	running  atomic.Bool
	noFaults context.Context // ends when the switches can no longer be set
	unfault  context.CancelFunc
}

func (s *switches) off() {
	s.faults.Store(&inForce{changed: make(chan struct{})})
	s.commands = make(chan setFaults)
	s.noFaults, s.unfault = context.WithCancel(context.Background())
}

type setFaults struct {
	faults Faults
	done   chan error // capacity 1
}

// SetFaults replaces all switches; it returns when they are in force, and an
// error if the port could not be opened again.
func (s *Server) SetFaults(f Faults) error {
	if err := f.check(); err != nil {
		return err
	}
	if !s.running.Load() {
		return ErrNotRunning
	}
	cmd := setFaults{faults: f, done: make(chan error, 1)}
	select {
	case s.commands <- cmd:
		return <-cmd.done
	case <-s.noFaults.Done():
		return ErrNotRunning
	}
}

// Faults are the switches as they were last set.
func (s *Server) Faults() Faults { return s.faults.Load().Faults }

// faultLoop alone opens and closes the data port and changes the switches.
func (s *Server) faultLoop(ctx context.Context) {
	flap := time.NewTimer(time.Hour)
	defer flap.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case cmd := <-s.commands:
			cmd.done <- s.apply(ctx, cmd.faults, cmd.faults.Flap > 0)
		case <-flap.C:
			f := s.faults.Load()
			if err := s.apply(ctx, f.Faults, f.Flap > 0 && !f.down); err != nil {
				s.opts.Logger.Warn("flapping backend stays down for one more period", "backend", s.opts.ID, "err", err)
			}
		}
		flap.Stop()
		if f := s.faults.Load(); f.Flap > 0 {
			flap.Reset(f.Flap / 2)
		}
	}
}

func (s *Server) apply(ctx context.Context, f Faults, down bool) error {
	old := s.faults.Swap(&inForce{Faults: f, down: down, changed: make(chan struct{})})
	close(old.changed)
	switch {
	case f.Hang:
		s.engine.setFactor(0)
	case f.Slow > 0:
		s.engine.setFactor(1 / f.Slow)
	default:
		s.engine.setFactor(1)
	}
	if !f.Refuse && !down {
		return s.data.open(ctx)
	}
	s.data.shut()
	if f.CloseConns {
		s.data.resetAll()
	}
	return nil
}

// wait blocks until the faults let the caller go on; false if ctx ended first.
func (s *Server) wait(ctx context.Context, free func(*inForce) bool) bool {
	for {
		f := s.faults.Load()
		if free(f) {
			return true
		}
		select {
		case <-f.changed:
		case <-ctx.Done():
			return false
		}
	}
}

func notHung(f *inForce) bool { return !f.Hang }

func (s *Server) unlessHung(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.wait(r.Context(), notHung) {
			h.ServeHTTP(w, r)
		}
	})
}

// breaks says whether an answer of so many tokens ends here.
func (s *Server) breaks(tokens int) bool {
	n := s.faults.Load().BreakAfter
	return n > 0 && tokens >= n
}
