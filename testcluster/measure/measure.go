// Package measure sends requests to any server as they are due, by chance or by a
// trace, and tells what their clients saw: the time to the head of an answer, to
// its first event, between events, and to its end.
//
// The loop is open: a request goes out when it is due, whether or not earlier ones
// are answered, and its times count from then. A server that stalls cannot keep
// the waits that it causes out of the figures (no coordinated omission), and how
// late the generator itself was is told, too. It must not know starling, only HTTP.
package measure

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Options say what is sent where. A field left zero has the default beside it.
type Options struct {
	Targets  []string // must be set: base URLs; requests go to one after the other
	Path     string   // /v1/chat/completions
	Header   http.Header
	Body     []byte // nil: a streamed chat completion of the arrival's size
	Model    string // demo-model
	Session  string // X-Session-ID: the header that names an arrival's session
	Arrivals iter.Seq[Arrival]
	MaxOpen  int           // 1000; what comes above is not sent, and counted
	Limit    time.Duration // 10m; no request takes longer
	Insecure bool          // take any certificate
}

// ErrOptions is what Run wraps when an option makes no sense.
var ErrOptions = errors.New("bad options")

const (
	mostOpen = 50_000
	maxLine  = 1 << 20 // bytes of a line of an event stream
)

// Run sends all arrivals, and returns when the last one is answered, or when ctx
// ends: what runs then is cut, and counted so.
func Run(ctx context.Context, o Options) (Report, error) {
	if err := o.complete(); err != nil {
		return Report{}, err
	}
	transport := &http.Transport{MaxIdleConnsPerHost: o.MaxOpen, DisableCompression: true, TLSClientConfig: o.tls()}
	defer transport.CloseIdleConnections()
	r := &run{o: o, client: &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
	r.sheet.begin()
	began := time.Now()
	r.sendAll(ctx, began)
	r.streams.Wait()
	return r.sheet.report(time.Since(began)), nil
}

func (o *Options) complete() error {
	if o.Path == "" {
		o.Path = "/v1/chat/completions"
	}
	if o.Model == "" {
		o.Model = "demo-model"
	}
	if o.Session == "" {
		o.Session = "X-Session-ID"
	}
	if o.MaxOpen == 0 {
		o.MaxOpen = 1000
	}
	if o.Limit == 0 {
		o.Limit = 10 * time.Minute
	}
	switch {
	case len(o.Targets) == 0 || o.Arrivals == nil:
		return fmt.Errorf("%w: a target and arrivals must be set", ErrOptions)
	case o.MaxOpen < 1 || o.MaxOpen > mostOpen:
		return fmt.Errorf("%w: %d open requests; write 1 to %d", ErrOptions, o.MaxOpen, mostOpen)
	case o.Limit < 0:
		return fmt.Errorf("%w: a limit of %v", ErrOptions, o.Limit)
	}
	for i, t := range o.Targets {
		if !strings.HasPrefix(t, "http://") && !strings.HasPrefix(t, "https://") {
			return fmt.Errorf("%w: %q is no URL; write for example http://127.0.0.1:8080", ErrOptions, t)
		}
		o.Targets[i] = strings.TrimRight(t, "/")
	}
	return nil
}

// run is one that goes on.
type run struct {
	o       Options
	client  *http.Client
	sheet   sheet
	streams sync.WaitGroup
}

func (r *run) sendAll(ctx context.Context, began time.Time) {
	wait := time.NewTimer(0)
	defer wait.Stop()
	i := 0
	for a := range r.o.Arrivals {
		due := began.Add(a.At)
		wait.Reset(time.Until(due))
		select {
		case <-wait.C:
		case <-ctx.Done():
			return
		}
		if !r.sheet.enter(r.o.MaxOpen, time.Since(due)) {
			continue
		}
		target := r.o.Targets[i%len(r.o.Targets)]
		i++
		r.streams.Go(func() {
			limited, cancel := context.WithTimeout(ctx, r.o.Limit)
			defer cancel()
			err := r.ask(limited, target, a, due)
			r.sheet.leave(kindOf(ctx, err), time.Since(due))
		})
	}
}

// statusError is an answer that is none.
type statusError struct {
	status int
	code   string // starling's own, where it is starling's
}

func (e *statusError) Error() string {
	return strings.TrimSpace(fmt.Sprintf("status %d %s", e.status, e.code))
}

func (r *run) ask(ctx context.Context, target string, a Arrival, due time.Time) error {
	body := r.o.Body
	if body == nil {
		body = a.chat(r.o.Model)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, target+r.o.Path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	for name, values := range r.o.Header {
		req.Header[name] = values
	}
	if a.Session != "" {
		req.Header.Set(r.o.Session, a.Session)
	}
	resp, err := r.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	r.sheet.head(time.Since(due))
	if resp.StatusCode/100 != 2 {
		_, _ = io.CopyN(io.Discard, resp.Body, 64<<10) // so that the connection can be kept
		return &statusError{resp.StatusCode, resp.Header.Get("X-Starling-Error")}
	}
	if !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		n, err := io.Copy(io.Discard, resp.Body)
		r.sheet.bytes(n)
		return err
	}
	return r.events(resp.Body, due)
}

// events reads an event stream: an event has come with the empty line behind it.
func (r *run) events(body io.Reader, due time.Time) error {
	in := bufio.NewScanner(body)
	in.Buffer(make([]byte, 4096), maxLine)
	last, data, n := time.Time{}, false, int64(0)
	for in.Scan() {
		n += int64(len(in.Bytes())) + 1
		if data = data || bytes.HasPrefix(in.Bytes(), []byte("data:")); len(in.Bytes()) > 0 || !data {
			continue
		}
		now := time.Now()
		if last.IsZero() {
			r.sheet.first(now.Sub(due))
		} else {
			r.sheet.gap(now.Sub(last))
		}
		last, data = now, false
	}
	r.sheet.bytes(n)
	return in.Err()
}

// kindOf is how a request ended, in words; "": well.
func kindOf(ctx context.Context, err error) string {
	var status *statusError
	var op *net.OpError
	switch {
	case err == nil:
		return ""
	case errors.As(err, &status):
		return status.Error()
	case ctx.Err() != nil:
		return "cut by the end of the run"
	case errors.Is(err, context.DeadlineExceeded):
		return "longer than the limit"
	case errors.As(err, &op) && op.Op == "dial":
		return "no connection"
	}
	return "broken off"
}
