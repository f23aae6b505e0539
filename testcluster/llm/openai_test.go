package llm

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"
)

// The forms as OpenAI documents them, decoded strictly: an unknown field fails.
type (
	chunkForm struct {
		ID, Object, Model string
		Created           int64
		Choices           []struct {
			Index int
			Delta struct {
				Role    string
				Content *string
			}
			Text         *string
			Message      *struct{ Role, Content, Refusal *string }
			Logprobs     *int
			FinishReason *string `json:"finish_reason"`
		}
		Usage json.RawMessage
	}
	errorForm struct {
		Error *struct {
			Message, Type string
			Param, Code   *string
		}
	}
)

func wantError(t *testing.T, raw, typ, code string) {
	t.Helper()
	e := decode[errorForm](t, raw).Error
	if e == nil || e.Message == "" || e.Type != typ || (e.Code == nil) != (code == "") || e.Code != nil && *e.Code != code {
		t.Errorf("error %s, want type %q and code %q in OpenAI's form", raw, typ, code)
	}
}

// fast makes a whole answer a matter of milliseconds.
func fast(o Options) Options {
	o.Speed = 100
	return o
}

func TestChatStream(t *testing.T) {
	u := serve(t, fast(Options{ID: "b1"}))
	st := u.stream(t.Context(), `{"model":"any","seed":7,"messages":[{"role":"user","content":"12345678"}],"stream":true,"stream_options":{"include_usage":true},"max_tokens":5}`)
	if st.err != nil || len(st.events) != 6 {
		t.Fatalf("%d events, %v; want 5 tokens and the usage", len(st.events), st.err)
	}
	text := ""
	for k, raw := range st.events[:5] {
		c := decode[chunkForm](t, raw)
		if c.ID != "chatcmpl-b1-1" || c.Object != "chat.completion.chunk" || c.Model != "any" || c.Created == 0 || len(c.Choices) != 1 || string(c.Usage) != "null" {
			t.Errorf("chunk %d: %s", k, raw)
		}
		ch := c.Choices[0]
		if (ch.Delta.Role == "assistant") != (k == 0) || (ch.FinishReason != nil) != (k == 4) || *ch.Delta.Content != Token(7, k) {
			t.Errorf("chunk %d: %s", k, raw)
		}
		text += *ch.Delta.Content
	}
	if text != Text(7, 5) {
		t.Errorf("text %q, want %q", text, Text(7, 5))
	}
	last := decode[chunkForm](t, st.events[5])
	if want := `{"prompt_tokens":5,"completion_tokens":5,"total_tokens":10,"prompt_tokens_details":{"cached_tokens":0}}`; len(last.Choices) != 0 || string(last.Usage) != want {
		t.Errorf("last chunk %s, want no choice and usage %s", st.events[5], want)
	}
}

func TestTextStream(t *testing.T) {
	u := serve(t, fast(Options{Model: "mine"}))
	st := u.streamAt(t.Context(), "/v1/completions", `{"prompt":["abcd","efghi"],"stream":true,"seed":1}`, OutputTokensHeader, "3")
	if st.err != nil || len(st.events) != 3 {
		t.Fatalf("%d events, %v", len(st.events), st.err)
	}
	c := decode[chunkForm](t, st.events[2])
	if c.Object != "text_completion" || c.Model != "mine" || *c.Choices[0].Text != Token(1, 2) || *c.Choices[0].FinishReason != "stop" || c.Usage != nil {
		t.Errorf("last chunk %s", st.events[2])
	}
	if got := u.turn(1); got.Prompt != 3 {
		t.Errorf("prompt of %d tokens, want 3", got.Prompt)
	}
}

func TestWholeAnswers(t *testing.T) {
	u := serve(t, fast(Options{}))
	status, h, raw := u.get("POST", u.URL()+"/v1/chat/completions", `{"messages":[{"role":"system","content":null},{"role":"user","content":[{"type":"text","text":"12345"}]}],"max_completion_tokens":4,"seed":-3}`, RequestIDHeader, "r-1")
	c := decode[chunkForm](t, raw)
	if status != 200 || h.Get("Content-Type") != "application/json" || h.Get(RequestIDHeader) != "r-1" || h.Get(BackendHeader) != "demo" {
		t.Errorf("status %d, headers %v", status, h)
	}
	seed := int64(-3)
	if c.Object != "chat.completion" || *c.Choices[0].Message.Role != "assistant" || *c.Choices[0].Message.Content != Text(uint64(seed), 4) || *c.Choices[0].FinishReason != "length" {
		t.Errorf("chat: %s", raw)
	}
	if want := `{"prompt_tokens":8,"completion_tokens":4,"total_tokens":12,"prompt_tokens_details":{"cached_tokens":0}}`; string(c.Usage) != want {
		t.Errorf("usage %s, want %s", c.Usage, want)
	}
	_, _, raw = u.get("POST", u.URL()+"/v1/completions", `{"prompt":[1,2,3]}`)
	if c = decode[chunkForm](t, raw); c.Object != "text_completion" || len(strings.Fields(*c.Choices[0].Text)) != answerTokens || *c.Choices[0].FinishReason != "stop" {
		t.Errorf("text: %s", raw)
	}
	if a, b := u.turn(1), u.turn(2); a.RequestID != "r-1" || a.Stream || a.Output != 4 || a.Outcome != Done || b.RequestID != "demo-2" || b.Prompt != 3 {
		t.Errorf("turns %+v, %+v", a, b)
	}
}

func TestTextFollowsSeedAndPrompt(t *testing.T) {
	ask := func(u *user, prompt string) string {
		_, _, raw := u.get("POST", u.URL()+"/v1/completions", fmt.Sprintf(`{"prompt":%q,"max_tokens":20}`, prompt))
		return *decode[chunkForm](t, raw).Choices[0].Text
	}
	a, b, other := serve(t, fast(Options{Seed: 1})), serve(t, fast(Options{Seed: 1})), serve(t, fast(Options{Seed: 2}))
	if ask(a, "x") != ask(b, "x") {
		t.Error("same seed and prompt, another text")
	}
	if ask(a, "x") == ask(a, "y") || ask(a, "x") == ask(other, "x") {
		t.Error("another seed or prompt, the same text")
	}
	text := Text(3, 5000)
	if !utf8.ValidString(text) || len(strings.Fields(text)) != 5000 {
		t.Errorf("5000 tokens are not as many words of valid UTF-8: %d", len(strings.Fields(text)))
	}
}

func TestRefusals(t *testing.T) {
	u := serve(t, fast(Options{}))
	msg := `"messages":[{"role":"user","content":"x"}]`
	for _, tc := range []struct {
		name, method, path, body string
		header                   string
		status                   int
		code                     string
	}{
		{"not JSON", "POST", "/v1/chat/completions", `{`, "", 400, ""},
		{"wrong type", "POST", "/v1/chat/completions", `{"messages":1}`, "", 400, ""},
		{"no messages", "POST", "/v1/chat/completions", `{}`, "", 400, ""},
		{"content", "POST", "/v1/chat/completions", `{"messages":[{"content":3}]}`, "", 400, ""},
		{"no prompt", "POST", "/v1/completions", `{}`, "", 400, ""},
		{"prompt", "POST", "/v1/completions", `{"prompt":{}}`, "", 400, ""},
		{"n", "POST", "/v1/chat/completions", `{"n":2,` + msg + `}`, "", 400, ""},
		{"max_tokens", "POST", "/v1/chat/completions", `{"max_tokens":0,` + msg + `}`, "", 400, ""},
		{"stream_options", "POST", "/v1/chat/completions", `{"stream_options":{"include_usage":true},` + msg + `}`, "", 400, ""},
		{"header", "POST", "/v1/chat/completions", `{` + msg + `}`, "0", 400, ""},
		{"context", "POST", "/v1/chat/completions", `{"max_tokens":131072,` + msg + `}`, "", 400, "context_length_exceeded"},
		{"body", "POST", "/v1/completions", `{"prompt":"` + strings.Repeat("x", maxBody) + `"}`, "", 413, ""},
		{"method", "GET", "/v1/chat/completions", ``, "", 405, "method_not_supported"},
		{"path", "GET", "/v1/embeddings", ``, "", 404, "unknown_url"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			status, h, raw := u.get(tc.method, u.URL()+tc.path, tc.body, PromptTokensHeader, tc.header)
			if status != tc.status || tc.status == 405 && h.Get("Allow") != "POST" {
				t.Errorf("status %d, Allow %q; want %d", status, h.Get("Allow"), tc.status)
			}
			wantError(t, raw, "invalid_request_error", tc.code)
		})
	}
	if turns, _ := u.Turns(0); len(turns) != 0 {
		t.Errorf("%d refusals are on record as turns", len(turns))
	}
}

func TestModelsAndHealth(t *testing.T) {
	u := serve(t, Options{Model: "m1"})
	_, _, raw := u.get("GET", u.URL()+"/v1/models", "")
	list := decode[struct {
		Object string
		Data   []struct {
			ID, Object  string
			Created     int64
			OwnedBy     string `json:"owned_by"`
			MaxModelLen int    `json:"max_model_len"`
		}
	}](t, raw)
	if list.Object != "list" || len(list.Data) != 1 || list.Data[0].ID != "m1" || list.Data[0].Object != "model" {
		t.Errorf("models: %s", raw)
	}
	for _, path := range []string{"/health", "/healthz"} {
		for _, method := range []string{"GET", "HEAD"} {
			if status, _, _ := u.get(method, u.URL()+path, ""); status != http.StatusOK {
				t.Errorf("%s %s: %d", method, path, status)
			}
		}
	}
}

func TestWhichSession(t *testing.T) {
	u := serve(t, fast(Options{}))
	body := `{"prompt":"x","max_tokens":1,"user":"from the body"}`
	for i, tc := range []struct {
		want    string
		body    string
		headers []string
	}{
		{"from the header", body, []string{SessionHeader, "from the header", "Cookie", "starling=c"}},
		{"cookie", body, []string{"Cookie", "a=b; starling=cookie", EpochHeader, "12"}},
		{"from the body", body, nil},
		{"", `{"prompt":"x","max_tokens":1}`, nil},
	} {
		u.get("POST", u.URL()+"/v1/completions", tc.body, tc.headers...)
		if got := u.turn(i + 1); got.Session != tc.want || (got.Epoch == "12") != (i == 1) {
			t.Errorf("turn %d: session %q and epoch %q, want session %q", i, got.Session, got.Epoch, tc.want)
		}
	}
	if got := u.Status().Sessions; got != 3 {
		t.Errorf("%d sessions are warm, want 3", got)
	}
}

func TestTraceGivesTheCounts(t *testing.T) {
	u := serve(t, fast(Options{Trace: []Row{{Context: 100, Generated: 7}, {Context: 200, Generated: 9}}}))
	for i, tc := range []struct {
		headers      []string
		body         string
		prompt, want int
	}{
		{nil, `{"prompt":"x"}`, 100, 7},
		{nil, `{"prompt":"x","max_tokens":3}`, 200, 3},
		{[]string{PromptTokensHeader, "5", OutputTokensHeader, "6"}, `{"prompt":"x"}`, 5, 6}, // uses no row
		{[]string{OutputTokensHeader, "6"}, `{"prompt":"x"}`, 100, 6},
	} {
		u.get("POST", u.URL()+"/v1/completions", tc.body, tc.headers...)
		if got := u.turn(i + 1); got.Prompt != tc.prompt || got.Output != tc.want {
			t.Errorf("request %d: %d and %d tokens, want %d and %d", i, got.Prompt, got.Output, tc.prompt, tc.want)
		}
	}
}
