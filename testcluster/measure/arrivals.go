package measure

import (
	"crypto/tls"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Arrival is a request that is due.
type Arrival struct {
	At             time.Duration // after the begin
	Prompt, Output int           // tokens
	Session        string        // "": of none
}

// Chance is a Poisson process: requests that know nothing of each other.
type Chance struct {
	Rate           float64 // per second
	Lasts          time.Duration
	Prompt, Output int // tokens, the medians; sizes are lognormal, as those of chats roughly are
	Sessions       int // every second request, by chance, is a turn of one of so many; 0: none
	Seed           uint64
}

const (
	spread    = 0.6 // two of three sizes are within a factor of e^0.6 of the median
	maxTokens = 100_000
	maxRows   = 5_000_000
)

// Arrivals are the same for the same Chance.
func (c Chance) Arrivals() iter.Seq[Arrival] {
	return func(yield func(Arrival) bool) {
		dice := rand.New(rand.NewPCG(c.Seed, 1))
		for at := 0.0; ; at += dice.ExpFloat64() / c.Rate {
			a := Arrival{At: time.Duration(at * float64(time.Second)), Prompt: lognormal(dice, c.Prompt), Output: lognormal(dice, c.Output)}
			if c.Sessions > 0 && dice.IntN(2) == 0 {
				a.Session = fmt.Sprint("bench-", 1+dice.IntN(c.Sessions))
			}
			if a.At >= c.Lasts || !yield(a) {
				return
			}
		}
	}
}

func lognormal(dice *rand.Rand, median int) int {
	return tokens(float64(median) * math.Exp(spread*dice.NormFloat64()))
}

func tokens(n float64) int { return int(min(max(n, 1), maxTokens)) }

// Trace reads requests from CSV: a line of names, then when each came
// (2006-01-02 15:04:05.0000000, or seconds), its prompt and its answer in tokens, as the
// Azure LLM inference traces have it. Speed 2 has them come twice as fast.
func Trace(in io.Reader, speed float64) ([]Arrival, error) {
	if !(speed > 0) {
		return nil, fmt.Errorf("%w: speed %v; write 1 for as it was", ErrOptions, speed)
	}
	rows := csv.NewReader(in)
	rows.FieldsPerRecord, rows.ReuseRecord = 3, true
	if _, err := rows.Read(); err != nil {
		return nil, fmt.Errorf("trace: %w", err)
	}
	var all []Arrival
	var zero float64
	for {
		fields, err := rows.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("trace: %w", err)
		}
		line, _ := rows.FieldPos(0)
		at, err := moment(fields[0])
		prompt, err2 := strconv.Atoi(strings.TrimSpace(fields[1]))
		output, err3 := strconv.Atoi(strings.TrimSpace(fields[2]))
		if err := errors.Join(err, err2, err3); err != nil {
			return nil, fmt.Errorf("trace: line %d: %w", line, err)
		}
		if len(all) == 0 {
			zero = at
		}
		if len(all) == maxRows {
			return nil, fmt.Errorf("trace: more than %d requests", maxRows)
		}
		all = append(all, Arrival{At: time.Duration((at - zero) / speed * float64(time.Second)), Prompt: tokens(float64(prompt)), Output: tokens(float64(output))})
	}
	if len(all) == 0 {
		return nil, errors.New("trace: there is no request")
	}
	slices.SortStableFunc(all, func(a, b Arrival) int { return int(a.At - b.At) })
	return all, nil
}

// moment is a time in seconds.
func moment(text string) (float64, error) {
	text = strings.TrimSpace(text)
	if t, err := time.Parse("2006-01-02 15:04:05", text); err == nil { // a fraction is taken, too
		return float64(t.UnixNano()) / 1e9, nil
	}
	return strconv.ParseFloat(text, 64)
}

// Until are those of a trace that come within a time; 0: all.
func Until(all []Arrival, most time.Duration) iter.Seq[Arrival] {
	return func(yield func(Arrival) bool) {
		for _, a := range all {
			if most > 0 && a.At >= most || !yield(a) {
				return
			}
		}
	}
}

// chat is a streamed chat completion with a prompt of about so many tokens.
func (a Arrival) chat(model string) []byte {
	body, err := json.Marshal(map[string]any{
		"model": model, "stream": true, "max_tokens": a.Output,
		"messages": []map[string]string{{"role": "user", "content": strings.Repeat("bird ", a.Prompt)}},
	})
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return body
}

func (o *Options) tls() *tls.Config { return &tls.Config{InsecureSkipVerify: o.Insecure} }
