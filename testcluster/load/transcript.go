package load

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/starling-lb/starling/testcluster/llm"
)

// errWrong is wrapped by every error that says the answer is not what it must
// be, though nothing broke.
var errWrong = errors.New("wrong answer")

// transcript follows one streamed answer and knows what must come next.
type transcript struct {
	seed   uint64
	want   int // tokens
	tokens int // so far
	done   bool
	inside bool // an event has begun whose blank line is due
}

// chunk is the part of an event that is checked.
type chunk struct {
	Object  string `json:"object"`
	Choices []struct {
		Delta struct {
			Content string `json:"content"`
		} `json:"delta"`
		FinishReason *string `json:"finish_reason"`
	} `json:"choices"`
}

func wrong(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{errWrong}, args...)...)
}

// read takes the answer from its first byte to its end; heard is told of each
// token as it comes. An end before [DONE] is wrong however clean it looks.
func (t *transcript) read(body io.Reader, heard func()) error {
	lines := bufio.NewReader(body)
	for {
		line, err := lines.ReadSlice('\n')
		switch {
		case errors.Is(err, io.EOF):
			return t.end(line)
		case errors.Is(err, bufio.ErrBufferFull):
			return wrong("a line of over %d bytes", len(line))
		case err != nil:
			return err
		}
		before := t.tokens
		if err := t.line(line[:len(line)-1]); err != nil {
			return err
		}
		if t.tokens > before {
			heard()
		}
	}
}

func (t *transcript) end(rest []byte) error {
	if !t.done || t.inside || len(rest) > 0 {
		return wrong("a clean end after %d of %d tokens, [DONE] seen: %v, in the middle of: %.40q", t.tokens, t.want, t.done, rest)
	}
	return nil
}

func (t *transcript) line(line []byte) error {
	switch data, ok := bytes.CutPrefix(line, []byte("data: ")); {
	case t.inside && len(line) == 0:
		t.inside = false
		return nil
	case t.inside || !ok:
		return wrong("line %.40q after %d tokens is not where one may be", line, t.tokens)
	case t.done:
		return wrong("event %.40q after [DONE]", data)
	case string(data) == "[DONE]":
		t.inside, t.done = true, true
		if t.tokens != t.want {
			return wrong("[DONE] after %d of %d tokens", t.tokens, t.want)
		}
		return nil
	default:
		t.inside = true
		return t.event(data)
	}
}

func (t *transcript) event(data []byte) error {
	var c chunk
	if err := json.Unmarshal(data, &c); err != nil {
		return wrong("event %.40q: %v", data, err)
	}
	if c.Object != "chat.completion.chunk" || len(c.Choices) != 1 {
		return wrong("event %.40q is no chunk with one choice", data)
	}
	got, finish := c.Choices[0].Delta.Content, c.Choices[0].FinishReason
	if expect := llm.Token(t.seed, t.tokens); got != expect {
		return wrong("token %d is %q, want %q", t.tokens, got, expect)
	}
	t.tokens++
	if last := t.tokens == t.want; (finish != nil) != last || last && *finish != "length" {
		return wrong("token %d of %d comes with the wrong finish_reason: %.200s", t.tokens, t.want, data)
	}
	return nil
}
