package traffic

import (
	"context"
	"encoding/base32"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"strings"
	"time"

	"github.com/starling-lb/starling/testcluster/chaos/history"
	"github.com/starling-lb/starling/testcluster/llm"
)

// codeHeader is on what starling answers itself.
const codeHeader = "X-Starling-Error"

// ask is a completion, streamed or plain, with a short prompt or a long one.
func (t *Traffic) ask(ctx context.Context, url string, p plan, turn *history.Turn) error {
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	connected := false
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected = true }})
	req, seed, err := request(ctx, url, p, turn.ID)
	if err != nil {
		return err
	}
	resp, err := t.client.Do(req)
	if err != nil {
		turn.End = t.why(ctx, err, connected)
		return err
	}
	defer resp.Body.Close()
	turn.First, turn.Status, turn.Backend = time.Now(), resp.StatusCode, resp.Header.Get(llm.BackendHeader)
	if resp.StatusCode != http.StatusOK {
		_, _ = io.CopyN(io.Discard, resp.Body, 64<<10) // so that the connection can be kept
		turn.End, turn.Code = refused, resp.Header.Get(codeHeader)
		return nil
	}
	return t.hear(ctx, leave, resp, p, said{seed: seed, want: p.want}, turn)
}

// hear reads an answer as it comes.
func (t *Traffic) hear(ctx context.Context, leave func(), resp *http.Response, p plan, s said, turn *history.Turn) error {
	body := &counting{r: resp.Body}
	var err error
	if p.kind == sse {
		err = s.stream(body, func(tokens int) bool {
			if tokens == p.leave {
				leave()
				return false
			}
			return true
		})
	} else {
		err = s.whole(body)
	}
	turn.Bytes = body.n
	switch {
	case err == nil && s.left:
		turn.End = left
	case err == nil:
		turn.End, turn.Whole = clean, true
	case errors.Is(err, errWrong):
		turn.End = clean
	case ctx.Err() != nil:
		turn.End = left
	default:
		turn.End = broken
	}
	return err
}

// why sorts a request that brought no answer. One that a node took and did not
// answer may have been begun somewhere: it is broken.
func (t *Traffic) why(ctx context.Context, err error, connected bool) string {
	var op *net.OpError
	switch {
	case ctx.Err() != nil && connected:
		return left
	case !connected, errors.As(err, &op) && op.Op == "dial":
		return unreachable
	}
	return broken
}

// request makes one, and says by which seed its answer must be.
func request(ctx context.Context, url string, p plan, id string) (*http.Request, uint64, error) {
	text, seed, given := "Tell me about starlings.", p.seed, fmt.Sprintf(`"seed":%d,`, p.seed)
	if p.kind == upload {
		text, given = long(p.seed), ""
		seed = llm.AnswerSeed(text)
	}
	body := fmt.Sprintf(`{"model":"demo-model",%s"stream":%v,"max_tokens":%d,"messages":[{"role":"user","content":"%s"}]}`, given, p.kind == sse, p.want, text)
	var from io.Reader = strings.NewReader(body)
	if p.kind == upload && p.seed%2 == 0 {
		from = io.MultiReader(from) // of no known length: chunked
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/chat/completions", from)
	if err != nil {
		return nil, 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(llm.RequestIDHeader, id)
	req.Header.Set(llm.PromptTokensHeader, strconv.Itoa(p.prompt))
	req.Header.Set(llm.OutputTokensHeader, strconv.Itoa(p.want))
	if p.session != "" {
		req.Header.Set(llm.SessionHeader, p.session)
	}
	return req, seed, nil
}

// long is a text of 8 to 128 KiB that no other seed has.
func long(seed uint64) string {
	dice := rand.New(rand.NewPCG(seed, 2))
	raw := make([]byte, 5<<10+dice.IntN(75<<10))
	for i := range raw {
		raw[i] = byte(dice.Uint32())
	}
	return base32.StdEncoding.EncodeToString(raw)
}

// errWrong is wrapped by every error that says the answer is not what it must be,
// though nothing broke.
var errWrong = errors.New("wrong answer")

func wrong(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{errWrong}, args...)...)
}

type counting struct {
	r io.Reader
	n int64
}

func (c *counting) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

// said is an answer, and what it must say.
type said struct {
	seed uint64
	want int
	left bool // its hearer had enough
}

// whole reads an answer in one piece.
func (s *said) whole(body io.Reader) error {
	raw, err := io.ReadAll(body)
	if err != nil {
		return err
	}
	var a struct {
		Choices []struct {
			Message struct {
				Content string `json:"content"`
			} `json:"message"`
		} `json:"choices"`
	}
	if err := json.Unmarshal(raw, &a); err != nil || len(a.Choices) != 1 {
		return wrong("%d bytes, no completion: %.60q", len(raw), raw)
	}
	if got := a.Choices[0].Message.Content; got != llm.Text(s.seed, s.want) {
		return wrong("%.60q is not the text of %d tokens that was asked for", got, s.want)
	}
	return nil
}
