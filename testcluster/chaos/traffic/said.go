package traffic

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"

	"github.com/starling-lb/starling/testcluster/llm"
)

// stream reads an answer of events, each of one token, and [DONE] behind them.
// heard is told of each token, and says whether to go on. An end before [DONE] is
// wrong however clean it looks.
func (s *said) stream(body io.Reader, heard func(tokens int) bool) error {
	lines := bufio.NewReader(body)
	tokens, done := 0, false
	for {
		line, err := lines.ReadSlice('\n')
		switch {
		case errors.Is(err, io.EOF) && done && len(line) == 0:
			return nil
		case errors.Is(err, io.EOF):
			return wrong("a clean end after %d of %d tokens, [DONE] seen: %v", tokens, s.want, done)
		case errors.Is(err, bufio.ErrBufferFull):
			return wrong("a line of over %d bytes", len(line))
		case err != nil:
			return err
		}
		data, event := bytes.CutPrefix(bytes.TrimSuffix(line, []byte("\n")), []byte("data: "))
		switch {
		case len(data) == 0:
			continue
		case !event || done:
			return wrong("%.40q after %d of %d tokens", line, tokens, s.want)
		case string(data) == "[DONE]":
			if done = true; tokens != s.want {
				return wrong("[DONE] after %d of %d tokens", tokens, s.want)
			}
			continue
		}
		if err := s.token(data, tokens); err != nil {
			return err
		}
		if tokens++; !heard(tokens) {
			s.left = true
			return nil
		}
	}
}

// token compares an event with what it must carry.
func (s *said) token(data []byte, number int) error {
	var c struct {
		Choices []struct {
			Delta struct {
				Content string `json:"content"`
			} `json:"delta"`
		} `json:"choices"`
	}
	if err := json.Unmarshal(data, &c); err != nil || len(c.Choices) != 1 {
		return wrong("event %.40q is no chunk with one choice", data)
	}
	if got, want := c.Choices[0].Delta.Content, llm.Token(s.seed, number); got != want || number >= s.want {
		return wrong("token %d of %d is %q, want %q", number, s.want, got, want)
	}
	return nil
}
