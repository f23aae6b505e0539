package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/starling-lb/starling/testcluster/measure"
)

const mostBody = 16 << 20 // bytes of a request

// benchFlags are what bench is told.
type benchFlags struct {
	options      measure.Options
	chance       measure.Chance
	trace, body  string
	fields       []string
	speed        float64
	json, failed bool
}

// newBench measures what clients of a server see.
func newBench() *cobra.Command {
	b := benchFlags{}
	c := &cobra.Command{
		Use: "bench --target URL", Short: "Send requests as they are due, and tell what their clients saw", Args: cobra.NoArgs,
		Long: "Bench sends streamed chat completions, or any body, to one server or several, by chance\n" +
			"at a rate or as a trace has it, whether or not earlier ones are answered. Its times\n" +
			"count from when a request was due: what waits behind a stall is in the figures. ctrl-C\n" +
			"ends it early, and the report is of what there was. Exit: 0, 1 if nothing was answered\n" +
			"whole (with --fail: if any request was not), 2 usage.\n\n" +
			"A trace is CSV with a line of names: time, prompt tokens, answer tokens, as in the Azure\n" +
			"LLM inference traces.",
		RunE: func(c *cobra.Command, _ []string) error { return b.run(c) },
	}
	f := c.Flags()
	f.StringArrayVar(&b.options.Targets, "target", nil, "base `URL`; several take turns")
	f.StringVar(&b.options.Path, "path", "/v1/chat/completions", "`PATH` of the requests")
	f.Float64Var(&b.chance.Rate, "rate", 10, "requests a second, at random times")
	f.DurationVar(&b.chance.Lasts, "duration", 30*time.Second, "for how long they come")
	f.IntVar(&b.chance.Prompt, "prompt", 500, "tokens of a prompt, the median")
	f.IntVar(&b.chance.Output, "output", 150, "tokens of an answer at most, the median")
	f.IntVar(&b.chance.Sessions, "sessions", 0, "every second request is a turn of one of so many sessions")
	f.Uint64Var(&b.chance.Seed, "seed", 0, "the same seed makes the same requests")
	f.StringVar(&b.trace, "trace", "", "`FILE` that says when requests come, and their sizes")
	f.Float64Var(&b.speed, "speed", 1, "how much faster than the trace; 0.5: half as fast")
	f.StringVar(&b.body, "body", "", "`FILE` that is sent instead of a chat completion")
	f.StringVar(&b.options.Model, "model", "demo-model", "`NAME` in the chat completions")
	f.StringArrayVar(&b.fields, "header", nil, "`\"Name: value\"` to send along; may be repeated")
	f.StringVar(&b.options.Session, "session-header", "X-Session-ID", "`NAME` of the header that names a session")
	f.IntVar(&b.options.MaxOpen, "max-open", 1000, "requests at once; what comes above is not sent, and counted")
	f.DurationVar(&b.options.Limit, "limit", 10*time.Minute, "how long a request may take")
	f.BoolVar(&b.options.Insecure, "insecure", false, "take any certificate")
	f.BoolVar(&b.json, "json", false, "print JSON, for programs")
	f.BoolVar(&b.failed, "fail", false, "exit with 1 if any request failed")
	if err := c.MarkFlagRequired("target"); err != nil {
		panic("BUG: " + err.Error())
	}
	return c
}

func (b *benchFlags) run(c *cobra.Command) error {
	o := b.options
	var err error
	if o.Arrivals, err = b.arrivals(c.Flags().Changed("duration")); err != nil {
		return &exit{exitUsage, err}
	}
	if o.Header, err = fields(b.fields); err != nil {
		return &exit{exitUsage, err}
	}
	if b.body != "" {
		if o.Body, err = readUpTo(b.body, mostBody); err != nil {
			return &exit{exitUsage, err}
		}
	}
	ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	r, err := measure.Run(ctx, o)
	switch {
	case errors.Is(err, measure.ErrOptions):
		return &exit{exitUsage, err}
	case err != nil:
		return err
	}
	if b.json {
		err = json.NewEncoder(c.OutOrStdout()).Encode(r)
	} else {
		err = r.Print(c.OutOrStdout())
	}
	if r.Done == 0 || b.failed && r.Done < r.Due {
		err = errors.Join(err, fmt.Errorf("%d of %d requests were answered whole", r.Done, r.Due))
	}
	return err
}

func (b *benchFlags) arrivals(cut bool) (iter.Seq[measure.Arrival], error) {
	if !(b.chance.Rate > 0 && b.chance.Rate <= 1e6) || b.chance.Lasts <= 0 || b.chance.Prompt < 1 || b.chance.Output < 1 || b.chance.Sessions < 0 {
		return nil, errors.New("--rate, --duration, --prompt and --output must be above 0, --sessions not below")
	}
	if b.trace == "" {
		return b.chance.Arrivals(), nil
	}
	file, err := os.Open(b.trace)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	all, err := measure.Trace(file, b.speed)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", b.trace, err)
	}
	most := time.Duration(0) // all of it, unless somebody wants less
	if cut {
		most = b.chance.Lasts
	}
	return measure.Until(all, most), nil
}

func fields(list []string) (http.Header, error) {
	h := http.Header{}
	for _, f := range list {
		name, value, ok := strings.Cut(f, ":")
		if !ok || strings.TrimSpace(name) == "" {
			return nil, fmt.Errorf("--header %q: write \"Name: value\"", f)
		}
		h.Add(strings.TrimSpace(name), strings.TrimSpace(value))
	}
	return h, nil
}

func readUpTo(path string, most int64) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, most+1))
	if err == nil && int64(len(text)) > most {
		err = fmt.Errorf("%s is longer than %d bytes", path, most)
	}
	return text, err
}
