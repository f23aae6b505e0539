package llm

import (
	"encoding/json"
	"net/http"
)

// apiError is a refusal in OpenAI's form.
type apiError struct {
	status  int
	Message string
	Type    string
	Param   string
	Code    string
}

func (e *apiError) Error() string { return e.Message }

func invalid(param, message string) *apiError {
	return &apiError{status: http.StatusBadRequest, Param: param, Message: message}
}

func (e *apiError) write(w http.ResponseWriter) {
	orDefault(&e.Type, "invalid_request_error")
	writeJSON(w, e.status, map[string]any{"error": map[string]any{
		"message": e.Message,
		"type":    e.Type,
		"param":   orNull(e.Param),
		"code":    orNull(e.Code),
	}})
}

func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(v) // a client that is gone needs no answer
}

// completion is OpenAI's answer, whole or one chunk of a stream.
type completion struct {
	ID      string          `json:"id"`
	Object  string          `json:"object"`
	Created int64           `json:"created"`
	Model   string          `json:"model"`
	Choices []any           `json:"choices"`
	Usage   json.RawMessage `json:"usage,omitempty"`
}

type chatChoice struct {
	Index        int          `json:"index"`
	Message      *chatMessage `json:"message,omitempty"` // of a whole answer
	Delta        *chatDelta   `json:"delta,omitempty"`   // of a chunk
	Logprobs     any          `json:"logprobs"`
	FinishReason any          `json:"finish_reason"`
}

type chatMessage struct {
	Role    string `json:"role"`
	Content string `json:"content"`
	Refusal any    `json:"refusal"`
}

type chatDelta struct {
	Role    string `json:"role,omitempty"`
	Content string `json:"content"`
}

type textChoice struct {
	Index        int    `json:"index"`
	Text         string `json:"text"`
	Logprobs     any    `json:"logprobs"`
	FinishReason any    `json:"finish_reason"`
}

type usage struct {
	PromptTokens     int `json:"prompt_tokens"`
	CompletionTokens int `json:"completion_tokens"`
	TotalTokens      int `json:"total_tokens"`
	Details          struct {
		CachedTokens int `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
}

// chunkChoice is token k as a chunk carries it. Role comes with the first token
// and the finish reason with the last, so that there is one token per event.
func (r *request) chunkChoice(k int) any {
	var finish any
	if k == r.want-1 {
		finish = r.finish
	}
	if !r.chat {
		return textChoice{Text: Token(r.seed, k), FinishReason: finish}
	}
	delta := &chatDelta{Content: Token(r.seed, k)}
	if k == 0 {
		delta.Role = "assistant"
	}
	return chatChoice{Delta: delta, FinishReason: finish}
}

// wholeChoice is the answer of a request that did not ask for a stream.
func (r *request) wholeChoice() any {
	text := Text(r.seed, r.want)
	if !r.chat {
		return textChoice{Text: text, FinishReason: r.finish}
	}
	return chatChoice{Message: &chatMessage{Role: "assistant", Content: text}, FinishReason: r.finish}
}

func (r *request) usageJSON(cached int) json.RawMessage {
	u := usage{PromptTokens: r.prompt, CompletionTokens: r.want, TotalTokens: r.prompt + r.want}
	u.Details.CachedTokens = cached
	raw, err := json.Marshal(u)
	if err != nil {
		panic("BUG: " + err.Error()) // four numbers
	}
	return raw
}

// object is the answer's kind in OpenAI's words, and the prefix of its id.
func (r *request) object() (object, prefix string) {
	switch {
	case !r.chat:
		return "text_completion", "cmpl-"
	case r.stream:
		return "chat.completion.chunk", "chatcmpl-"
	default:
		return "chat.completion", "chatcmpl-"
	}
}
