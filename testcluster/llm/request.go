package llm

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"net/http"
	"strconv"
)

const (
	maxBody       = 4 << 20
	maxContext    = 131_072 // tokens of prompt and answer together
	answerTokens  = 64      // of an answer for which nobody says how long it is
	bytesPerToken = 4
	messageTokens = 3 // what a chat template adds to each message
)

// What requests and answers carry beside OpenAI's form.
const (
	PromptTokensHeader = "X-Demo-Prompt-Tokens" // the prompt's tokens, whatever its text
	OutputTokensHeader = "X-Demo-Output-Tokens" // the answer's, unless max_tokens is less
	EpochHeader        = "X-Starling-Epoch"     // starling's session epoch; kept in the turn
	SessionHeader      = "X-Session-ID"
	SessionCookie      = "starling"
	RequestIDHeader    = "X-Request-ID"
	BackendHeader      = "X-Demo-Backend" // on answers: the server's ID
)

// request is what matters of a completion request.
type request struct {
	id      string
	session string
	epoch   string
	model   string
	chat    bool
	stream  bool
	usage   bool // a last chunk with usage was asked for
	seed    uint64
	prompt  int // tokens
	want    int // tokens of the answer
	finish  string
}

// body is the part of OpenAI's request form that changes an answer here; other
// fields are accepted and do nothing.
type body struct {
	Model         string          `json:"model"`
	Messages      []message       `json:"messages"`
	Prompt        json.RawMessage `json:"prompt"`
	Stream        bool            `json:"stream"`
	StreamOptions *struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
	MaxTokens           *int   `json:"max_tokens"`
	MaxCompletionTokens *int   `json:"max_completion_tokens"`
	N                   *int   `json:"n"`
	Seed                *int64 `json:"seed"`
	User                string `json:"user"`
}

type message struct {
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
}

func (s *Server) readRequest(w http.ResponseWriter, r *http.Request, chat bool) (*request, error) {
	b, err := readBody(w, r, chat)
	if err != nil {
		return nil, err
	}
	req := &request{
		id:      r.Header.Get(RequestIDHeader),
		session: sessionOf(r, b),
		epoch:   r.Header.Get(EpochHeader),
		model:   b.Model,
		chat:    chat,
		stream:  b.Stream,
		usage:   b.StreamOptions != nil && b.StreamOptions.IncludeUsage,
	}
	orDefault(&req.model, s.opts.Model)
	text, err := b.measure(chat)
	if err != nil {
		return nil, err
	}
	req.seed = mix(s.opts.Seed ^ text.hash)
	if b.Seed != nil {
		req.seed = uint64(*b.Seed)
	}
	return req, s.size(req, r.Header, b, text.tokens)
}

func readBody(w http.ResponseWriter, r *http.Request, chat bool) (*body, error) {
	var b body
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(&b); err != nil {
		if tooLarge := new(http.MaxBytesError); errors.As(err, &tooLarge) {
			return nil, &apiError{status: http.StatusRequestEntityTooLarge, Message: fmt.Sprintf("The body is over %d bytes.", maxBody)}
		}
		return nil, invalid("", "We could not parse the JSON body of your request: "+err.Error())
	}
	switch {
	case chat && len(b.Messages) == 0:
		return nil, invalid("messages", "messages must hold at least one message.")
	case !chat && len(b.Prompt) == 0:
		return nil, invalid("prompt", "prompt is missing.")
	case b.N != nil && *b.N != 1:
		return nil, invalid("n", "Only n = 1 is served here.")
	case b.StreamOptions != nil && !b.Stream:
		return nil, invalid("stream_options", "stream_options is only allowed when stream is true.")
	}
	return &b, nil
}

func sessionOf(r *http.Request, b *body) string {
	if s := r.Header.Get(SessionHeader); s != "" {
		return s
	}
	if c, err := r.Cookie(SessionCookie); err == nil && c.Value != "" {
		return c.Value
	}
	return b.User
}

// size settles how many tokens come in and go out: headers say it, else the
// trace, else the request itself.
func (s *Server) size(req *request, h http.Header, b *body, estimate int) error {
	limit := b.MaxCompletionTokens
	if limit == nil {
		limit = b.MaxTokens
	}
	if limit != nil && *limit < 1 {
		return invalid("max_tokens", fmt.Sprintf("max_tokens must be at least 1, not %d.", *limit))
	}
	req.prompt, req.want = estimate, answerTokens
	if limit != nil {
		req.want = *limit // a model that always has more to say
	}
	if n := len(s.opts.Trace); n > 0 && (h.Get(PromptTokensHeader) == "" || h.Get(OutputTokensHeader) == "") {
		row := s.opts.Trace[(s.traced.Add(1)-1)%uint64(n)]
		req.prompt, req.want = row.Context, row.Generated
	}
	if err := tokensFrom(h, PromptTokensHeader, &req.prompt); err != nil {
		return err
	}
	if err := tokensFrom(h, OutputTokensHeader, &req.want); err != nil {
		return err
	}
	req.finish = "stop"
	if limit != nil && req.want >= *limit {
		req.want, req.finish = *limit, "length"
	}
	if req.prompt+req.want > maxContext {
		e := invalid("messages", fmt.Sprintf("This model's maximum context length is %d tokens, but %d of the prompt and %d of the completion were asked for.", maxContext, req.prompt, req.want))
		e.Code = "context_length_exceeded"
		return e
	}
	return nil
}

func tokensFrom(h http.Header, name string, n *int) error {
	v := h.Get(name)
	if v == "" {
		return nil
	}
	got, err := strconv.Atoi(v)
	if err != nil || got < 1 || got > maxContext {
		return invalid(name, fmt.Sprintf("%s must be a number from 1 to %d, not %q.", name, maxContext, v))
	}
	*n = got
	return nil
}

// measured is a prompt's size and fingerprint.
type measured struct {
	tokens int
	hash   uint64
}

func (b *body) measure(chat bool) (measured, error) {
	if !chat {
		tokens, ok := promptTokens(b.Prompt)
		if !ok {
			return measured{}, invalid("prompt", "prompt must be a string, a list of strings, or a list of tokens.")
		}
		return measured{max(1, tokens), fingerprint(b.Prompt)}, nil
	}
	m := measured{}
	for i, msg := range b.Messages {
		tokens, ok := contentTokens(msg.Content)
		if !ok {
			return m, invalid(fmt.Sprintf("messages.[%d].content", i), "content must be a string or a list of parts.")
		}
		m.tokens += tokens + messageTokens
		m.hash = mix(m.hash ^ fingerprint(msg.Content))
	}
	return m, nil
}

func fingerprint(b []byte) uint64 {
	h := fnv.New64a()
	h.Write(b)
	return h.Sum64()
}

func textTokens(s string) int { return (len(s) + bytesPerToken - 1) / bytesPerToken }

func contentTokens(raw json.RawMessage) (int, bool) {
	if len(raw) == 0 || string(raw) == "null" {
		return 0, true // as in an assistant's message that only calls tools
	}
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return textTokens(text), true
	}
	var parts []struct {
		Text string `json:"text"`
	}
	if json.Unmarshal(raw, &parts) != nil {
		return 0, false
	}
	sum := 0
	for _, p := range parts {
		sum += textTokens(p.Text)
	}
	return sum, true
}

func promptTokens(raw json.RawMessage) (int, bool) {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return textTokens(text), true
	}
	var texts []string
	if json.Unmarshal(raw, &texts) == nil {
		sum := 0
		for _, t := range texts {
			sum += textTokens(t)
		}
		return sum, true
	}
	var tokens []int
	if json.Unmarshal(raw, &tokens) == nil {
		return len(tokens), true
	}
	return 0, false
}
