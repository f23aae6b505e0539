package llm

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// writeWait is how long a client may take no byte before it counts as gone.
const writeWait = time.Minute

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/v1/chat/completions", only(http.MethodPost, func(w http.ResponseWriter, r *http.Request) { s.complete(w, r, true) }))
	mux.Handle("/v1/completions", only(http.MethodPost, func(w http.ResponseWriter, r *http.Request) { s.complete(w, r, false) }))
	mux.Handle("/v1/realtime", s.unlessHung(only(http.MethodGet, s.realtime)))
	mux.Handle("/v1/models", s.unlessHung(only(http.MethodGet, s.models)))
	mux.Handle("/metrics", s.unlessHung(s.metrics.handler()))
	mux.Handle("/health", only(http.MethodGet, s.health))
	mux.Handle("/healthz", only(http.MethodGet, s.health))
	mux.Handle("/", s.unlessHung(http.HandlerFunc(notFound)))
	return s.named(mux)
}

// named says on every answer which backend gave it.
func (s *Server) named(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(BackendHeader, s.opts.ID)
		if id := r.Header.Get(RequestIDHeader); id != "" {
			w.Header().Set(RequestIDHeader, id)
		}
		h.ServeHTTP(w, r)
	})
}

func only(method string, h http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != method && !(r.Method == http.MethodHead && method == http.MethodGet) {
			w.Header().Set("Allow", method)
			(&apiError{status: http.StatusMethodNotAllowed, Code: "method_not_supported", Message: fmt.Sprintf("Not allowed to %s on %s.", r.Method, r.URL.Path)}).write(w)
			return
		}
		h(w, r)
	})
}

func notFound(w http.ResponseWriter, r *http.Request) {
	(&apiError{status: http.StatusNotFound, Code: "unknown_url", Message: fmt.Sprintf("Unknown request URL: %s %s.", r.Method, r.URL.Path)}).write(w)
}

func (s *Server) models(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, map[string]any{"object": "list", "data": []any{map[string]any{
		"id": s.opts.Model, "object": "model", "created": s.created.Unix(), "owned_by": "starling", "max_model_len": maxContext,
	}}})
}

func (s *Server) complete(w http.ResponseWriter, r *http.Request, chat bool) {
	// Read before a hang may hold it: only behind the body does net/http notice
	// a client that leaves.
	req, err := s.readRequest(w, r, chat)
	if err != nil {
		if s.wait(r.Context(), notHung) {
			err.(*apiError).write(w)
		}
		return
	}
	a := s.answer(w, r, req)
	if outcome := a.run(); outcome != Done {
		s.engine.cancel(a.job)
		a.end(outcome)
		if outcome == Broken {
			connOf(a.ctx).reset() // on record before the client can see it
		}
	}
}

func (s *Server) answer(w http.ResponseWriter, r *http.Request, req *request) *answer {
	n := s.answers.Add(1)
	orDefault(&req.id, fmt.Sprintf("%s-%d", s.opts.ID, n))
	w.Header().Set(RequestIDHeader, req.id)
	object, prefix := req.object()
	now := time.Now()
	return &answer{
		s: s, w: w, out: http.NewResponseController(w), ctx: r.Context(), req: req,
		job:  newJob(req),
		form: completion{ID: fmt.Sprintf("%s%s-%d", prefix, s.opts.ID, n), Object: object, Created: now.Unix(), Model: req.model},
		turn: Turn{
			Backend: s.opts.ID, RequestID: req.id, Session: req.session, Epoch: req.epoch, Model: req.model,
			Stream: req.stream, Start: now, Prompt: req.prompt,
		},
	}
}

// answer is one completion on its way out.
type answer struct {
	s    *Server
	w    http.ResponseWriter
	out  *http.ResponseController
	ctx  context.Context // ends when the client leaves or the server is cut
	req  *request
	job  *job
	form completion // what all chunks have in common
	turn Turn
}

// run ends the turn itself only if it is done, since that must be on record
// before the answer's last bytes.
func (a *answer) run() Outcome {
	if !a.s.wait(a.ctx, notHung) {
		return a.left()
	}
	if !a.s.engine.submit(a.job) {
		a.w.Header().Set("Retry-After", "1")
		full := apiError{status: http.StatusTooManyRequests, Type: "rate_limit_error", Code: "rate_limit_exceeded", Message: "The engine's batch and queue are full; try again later."}
		full.write(a.w)
		return Shed
	}
	if a.req.stream {
		if err := a.head(); err != nil {
			return a.left()
		}
	}
	if outcome := a.relay(); outcome != Done {
		return outcome
	}
	a.end(Done)
	a.finish()
	return Done
}

// relay writes tokens as the engine makes them.
func (a *answer) relay() Outcome {
	for a.turn.Output < a.req.want {
		select {
		case <-a.job.ready:
		case <-a.ctx.Done():
			return a.left()
		}
		for made := int(a.job.made.Load()); a.turn.Output < made; {
			if err := a.token(); err != nil {
				return a.left()
			}
			if a.s.breaks(a.turn.Output) {
				return Broken
			}
		}
	}
	return Done
}

// left tells apart who ended the turn early.
func (a *answer) left() Outcome {
	switch {
	case connOf(a.ctx).wasReset():
		return Broken
	case a.s.ctx.Err() != nil:
		return Stopped
	}
	return Aborted
}

func (a *answer) end(outcome Outcome) {
	a.turn.End = time.Now()
	a.turn.Outcome = outcome
	a.turn.Cached = int(a.job.cached.Load())
	a.turn.Warm = a.turn.Cached > 0
	if outcome == Stopped {
		a.s.cutOff.Add(1)
	}
	a.s.metrics.count(a.turn, a.req.finish)
	a.s.turns.add(a.turn)
}

func (a *answer) head() error {
	a.w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	a.w.Header().Set("Cache-Control", "no-cache")
	a.w.WriteHeader(http.StatusOK)
	return a.out.Flush()
}

// token puts the next token on the wire, if there is a stream to put it on.
func (a *answer) token() error {
	if a.turn.Output == 0 {
		a.turn.FirstByte = time.Now()
	}
	k := a.turn.Output
	a.turn.Output++
	if !a.req.stream {
		return nil
	}
	chunk := a.form
	chunk.Choices = []any{a.req.chunkChoice(k)}
	if a.req.usage {
		chunk.Usage = json.RawMessage("null")
	}
	return a.event(chunk)
}

func (a *answer) event(v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		panic("BUG: " + err.Error()) // strings and numbers
	}
	a.out.SetWriteDeadline(time.Now().Add(writeWait)) // fails only on a closed connection, as the write will
	if _, err := fmt.Fprintf(a.w, "data: %s\n\n", raw); err != nil {
		return err
	}
	return a.out.Flush()
}

// finish writes what comes after the last token. A client that leaves here had
// all of the answer.
func (a *answer) finish() {
	cached := int(a.job.cached.Load())
	if !a.req.stream {
		a.form.Choices = []any{a.req.wholeChoice()}
		a.form.Usage = a.req.usageJSON(cached)
		writeJSON(a.w, http.StatusOK, a.form)
		return
	}
	if a.req.usage {
		chunk := a.form
		chunk.Choices = []any{}
		chunk.Usage = a.req.usageJSON(cached)
		if a.event(chunk) != nil {
			return
		}
	}
	if _, err := fmt.Fprint(a.w, "data: [DONE]\n\n"); err == nil {
		a.out.Flush()
	}
}

// health answers probes; faults may speak for it, even while all else hangs.
func (s *Server) health(w http.ResponseWriter, r *http.Request) {
	if d := s.faults.Load().HealthDelay; d > 0 {
		select {
		case <-time.After(d):
		case <-r.Context().Done():
			return
		}
	}
	spoken := func(f *inForce) bool {
		return f.Health == HealthOK || f.Health == HealthFail || f.Health == HealthAuto && !f.Hang
	}
	if !s.wait(r.Context(), spoken) {
		return
	}
	if s.faults.Load().Health == HealthFail {
		(&apiError{status: http.StatusServiceUnavailable, Type: "server_error", Message: "Told to fail by /control/faults."}).write(w)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Content-Length", strconv.Itoa(len("ok\n")))
	fmt.Fprintln(w, "ok")
}
