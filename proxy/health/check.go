package health

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"time"

	"github.com/starling-lb/starling/proxy/backend"
)

const (
	maxHead    = 64 << 10    // bytes of an answer's head
	maxBody    = 64 << 10    // bytes of a body that an expression is looked for in
	maxInterim = 5           // answers before the final one
	askAgain   = time.Minute // for a path that the backend does not have
)

// target is one backend, and what checks have shown of it. One goroutine has it.
type target struct {
	prober  *Prober
	pool    *patients
	backend *backend.Backend

	cfg  backend.HealthConfig // that the next two were made of
	good backend.Statuses
	body *regexp.Regexp // nil: any will do

	hasPath bool      // the path has answered something else than that it does not exist
	noPath  time.Time // when it said so last; zero: it did not
}

func newTarget(p *Prober, pool *patients, b *backend.Backend) *target {
	return &target{prober: p, pool: pool, backend: b}
}

// adopt makes the rules of a check ready; they were validated.
func (t *target) adopt(cfg backend.HealthConfig) {
	if cfg == t.cfg {
		return
	}
	if cfg.Path != t.cfg.Path || cfg.Type != t.cfg.Type {
		t.hasPath, t.noPath = false, time.Time{}
	}
	t.cfg, t.body = cfg, nil
	t.good, _ = backend.ParseStatuses(cfg.ExpectStatus)
	if cfg.ExpectBody != "" {
		t.body, _ = regexp.Compile(cfg.ExpectBody)
	}
}

// look checks the backend once.
func (t *target) look(ctx context.Context, cfg backend.HealthConfig) backend.Look {
	t.adopt(cfg)
	ctx, cancel := context.WithTimeout(ctx, cfg.Timeout)
	defer cancel()
	t.backend.Listen(time.Now())
	began := time.Now()
	l := backend.Look{Finding: backend.LookOK}
	err := t.lives(ctx)
	if err == nil && cfg.ReadyPath != "" {
		err = t.ready(ctx)
	}
	l.At = time.Now()
	l.Took = l.At.Sub(began)
	t.backend.Listen(l.At)
	var waits *notReady
	switch {
	case errors.As(err, &waits):
		l.Finding, l.Why = backend.LookNotReady, err.Error()
	case err != nil:
		l.Finding, l.Why, l.TimedOut = backend.LookFail, err.Error(), late(err)
	default:
		t.pool.pace.add(t.backend, l.Took)
		if most := t.pool.pace.limit(cfg.SlowThreshold); most > 0 && l.Took > most {
			l.Finding, l.Why = backend.LookSlow, fmt.Sprintf("%v, where %v is slow", l.Took.Round(time.Microsecond), most.Round(time.Microsecond))
		}
	}
	return l
}

// late tells whether a check failed for want of an answer in time.
func late(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded)
}

// lives asks whether the backend lives. One that never had the path is asked for
// a connection instead: that it was not told of health checks is no illness.
func (t *target) lives(ctx context.Context) error {
	if t.cfg.Type == "tcp" || !t.noPath.IsZero() && time.Since(t.noPath) < askAgain {
		nc, err := t.prober.opt.Connect(ctx, t.pool.pool.Name, t.backend)
		if err != nil {
			return fmt.Errorf("no connection: %w", err)
		}
		return nc.Close()
	}
	status, fits, err := t.get(ctx, t.cfg.Path)
	switch {
	case err != nil:
		return fmt.Errorf("GET %s: %w", t.cfg.Path, err)
	case !t.hasPath && (status == http.StatusNotFound || status == http.StatusMethodNotAllowed) && !t.good.Has(status):
		t.missing(status)
		return nil
	}
	t.hasPath, t.noPath = true, time.Time{}
	switch {
	case !t.good.Has(status):
		return fmt.Errorf("GET %s answered %d", t.cfg.Path, status)
	case !fits:
		return fmt.Errorf("GET %s answered a body that does not match %s", t.cfg.Path, t.cfg.ExpectBody)
	}
	return nil
}

func (t *target) missing(status int) {
	if t.noPath.IsZero() {
		t.prober.opt.Logger.Warn("the backend has no such health path; only whether it takes connections is checked: name its path in health.path, or write type: tcp",
			"pool", t.pool.pool.Name, "backend", t.backend.ID, "path", t.cfg.Path, "status", status)
	}
	t.noPath = time.Now()
}

// notReady is a backend's own word that it wants no streams.
type notReady struct {
	path   string
	status int
}

func (e *notReady) Error() string { return fmt.Sprintf("GET %s answered %d", e.path, e.status) }

func (t *target) ready(ctx context.Context) error {
	status, _, err := t.get(ctx, t.cfg.ReadyPath)
	switch {
	case err != nil:
		return fmt.Errorf("GET %s: %w", t.cfg.ReadyPath, err)
	case !t.good.Has(status):
		return &notReady{t.cfg.ReadyPath, status}
	}
	return nil
}

// get asks for a path on a connection of its own, which a backend that takes no
// new ones fails; fits tells whether the body is as expected.
func (t *target) get(ctx context.Context, path string) (status int, fits bool, err error) {
	nc, err := t.prober.opt.Connect(ctx, t.pool.pool.Name, t.backend)
	if err != nil {
		return 0, false, fmt.Errorf("no connection: %w", err)
	}
	defer func() { _ = nc.Close() }()
	undo := context.AfterFunc(ctx, func() { _ = nc.SetDeadline(time.Unix(1, 0)) })
	defer undo()
	if status, fits, err = t.exchange(nc, path); err != nil && ctx.Err() != nil {
		err = cmp.Or(context.Cause(ctx), err)
	}
	return status, fits, err
}

func (t *target) exchange(nc net.Conn, path string) (status int, fits bool, err error) {
	if _, err := fmt.Fprintf(nc, "GET %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: starling-health\r\nAccept: */*\r\nConnection: close\r\n\r\n", path, t.backend.Addr.Host); err != nil {
		return 0, false, err
	}
	r := bufio.NewReader(io.LimitReader(nc, maxHead+maxBody))
	for range maxInterim {
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			return 0, false, err
		}
		if resp.StatusCode < 200 {
			continue
		}
		fits, err := t.matches(resp.Body)
		return resp.StatusCode, fits, err
	}
	return 0, false, errors.New("too many interim answers")
}

// matches looks for the expected body; what is longer than maxBody is judged by
// its beginning.
func (t *target) matches(body io.Reader) (bool, error) {
	if t.body == nil {
		return true, nil
	}
	text, err := io.ReadAll(io.LimitReader(body, maxBody))
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return false, err
	}
	return t.body.Match(text), nil
}
