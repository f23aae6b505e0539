package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/starling-lb/starling/testcluster/llm"
)

// stream is one request and its answer.
type stream struct {
	url    string
	tally  *tally
	due    time.Time
	prompt int // tokens
	said   transcript

	session string // whose turn it is; empty: nobody's
	backend string // which answers; empty until the answer's head tells
}

// statusError is an answer that is none of a backend's streams.
type statusError struct {
	status int
	code   string // starling's own, where it is starling's answer
}

func (e *statusError) Error() string {
	return strings.TrimSpace(fmt.Sprintf("status %d %s", e.status, e.code))
}

func (s *stream) run(ctx context.Context, client *http.Client) {
	limited, cancel := context.WithTimeout(ctx, streamLimit)
	defer cancel()
	err := s.converse(limited, client)
	s.tally.end(s, kindOf(ctx, err), err)
}

func (s *stream) converse(ctx context.Context, client *http.Client) error {
	req, err := s.request(ctx)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		_, _ = io.CopyN(io.Discard, resp.Body, 64<<10) // so that the connection can be kept
		return &statusError{resp.StatusCode, resp.Header.Get("X-Starling-Error")}
	}
	s.backend = resp.Header.Get(llm.BackendHeader)
	s.tally.answered(s.backend, s.session)
	return s.said.read(resp.Body, s.heard)
}

func (s *stream) request(ctx context.Context) (*http.Request, error) {
	body := fmt.Sprintf(`{"model":"demo-model","stream":true,"seed":%d,"max_tokens":%d,"messages":[{"role":"user","content":"Tell me about starlings."}]}`, s.said.seed, s.said.want)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	if s.session != "" {
		req.Header.Set("X-Session-ID", s.session)
	}
	req.Header.Set(llm.PromptTokensHeader, strconv.Itoa(s.prompt))
	req.Header.Set(llm.OutputTokensHeader, strconv.Itoa(s.said.want))
	return req, nil
}

func (s *stream) heard() {
	now := time.Now()
	if s.said.tokens == 1 {
		s.tally.first(now, now.Sub(s.due))
	}
	s.tally.token(now)
}

// kind is how a stream ended.
type kind string

// Those that are no failure; any other kind is one, in words for people.
const (
	kindDone    kind = "done"
	kindStopped kind = "stopped" // cut by the end of the load
	kindBroken  kind = "broken"  // while its backend was hurt on purpose
)

// kindOf sorts an end. It cannot know whether a break was on purpose: the tally
// does.
func kindOf(ctx context.Context, err error) kind {
	var status *statusError
	var op *net.OpError
	switch {
	case err == nil:
		return kindDone
	case errors.Is(err, errWrong):
		return "wrong answer"
	case ctx.Err() != nil:
		return kindStopped
	case errors.As(err, &status):
		return kind(status.Error())
	case errors.Is(err, context.DeadlineExceeded):
		return kind(fmt.Sprintf("longer than %v", streamLimit))
	case errors.As(err, &op) && op.Op == "dial":
		return "no connection"
	}
	return kindCut
}

const kindCut kind = "broken off"

// breakable are the kinds that a hurt backend explains.
func (k kind) breakable() bool { return k == kindCut || k == "status 502 backend_broke" }
