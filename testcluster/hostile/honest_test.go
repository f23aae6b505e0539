package hostile

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"
)

// honest is clients who arrive at a fixed rate, whether or not others have been
// answered: small requests, every second one on a connection of its own, and event
// streams.
type honest struct {
	url      string
	requests float64 // per second
	streams  float64 // likewise

	mu    sync.Mutex // guards what follows
	count count
}

// count is what honest clients got.
type count struct {
	sent, answered, begun, whole int
	events                       int
	waits                        []time.Duration // from when a small request was due to the end of its answer
	gaps                         []time.Duration // between two events, beyond their pace
	faults                       map[string]int
}

func (c *count) add(o count) {
	c.sent, c.answered, c.begun, c.whole, c.events = c.sent+o.sent, c.answered+o.answered, c.begun+o.begun, c.whole+o.whole, c.events+o.events
	c.waits, c.gaps = append(c.waits, o.waits...), append(c.gaps, o.gaps...)
	if c.faults == nil {
		c.faults = map[string]int{}
	}
	for k, n := range o.faults {
		c.faults[k] += n
	}
}

// late is when an answer comes too late to count.
const late = 15 * time.Second

// run has clients come for as long as said, and returns when all have been served
// or have given up.
func (h *honest) run(ctx context.Context, lasts time.Duration) count {
	h.count = count{faults: map[string]int{}}
	kept := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}, Timeout: late}
	once := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: late}
	long := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: events*pace + late}
	defer kept.CloseIdleConnections()
	var all sync.WaitGroup
	all.Go(func() {
		arrive(ctx, lasts, h.requests, func(i int, due time.Time) {
			all.Go(func() { h.small([]*http.Client{kept, once}[i%2], due) })
		})
	})
	all.Go(func() {
		arrive(ctx, lasts, h.streams, func(int, time.Time) { all.Go(func() { h.stream(long) }) })
	})
	all.Wait()
	return h.count
}

func arrive(ctx context.Context, lasts time.Duration, rate float64, come func(int, time.Time)) {
	began := time.Now()
	for i := range int(lasts.Seconds() * rate) {
		due := began.Add(time.Duration(float64(i) / rate * float64(time.Second)))
		pause(ctx, time.Until(due))
		come(i, due)
	}
}

func (h *honest) small(c *http.Client, due time.Time) {
	err := h.ask(c, "/small", func(body io.Reader) error {
		text, err := io.ReadAll(body)
		if err == nil && string(text) != "ok" {
			err = fmt.Errorf("body %q", text)
		}
		return err
	})
	took := time.Since(due)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.count.sent++
	if err != nil {
		h.count.faults[err.Error()]++
		return
	}
	h.count.answered++
	h.count.waits = append(h.count.waits, took)
}

func (h *honest) stream(c *http.Client) {
	var got count
	last := time.Now()
	err := h.ask(c, "/sse", func(body io.Reader) error {
		for i := range events {
			want := fmt.Sprintf("data: %d\n\n", i)
			text := make([]byte, len(want))
			if _, err := io.ReadFull(body, text); err != nil {
				return err
			}
			if string(text) != want {
				return fmt.Errorf("event %q, want %q", text, want)
			}
			if i > 0 {
				got.gaps = append(got.gaps, max(0, time.Since(last)-pace))
			}
			last = time.Now()
			got.events++
		}
		if _, err := body.Read(make([]byte, 1)); err != io.EOF {
			return fmt.Errorf("no end: %w", err)
		}
		return nil
	})
	got.begun = 1
	if err == nil {
		got.whole = 1
	} else {
		got.faults = map[string]int{err.Error(): 1}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.count.add(got)
}

func (h *honest) ask(c *http.Client, path string, read func(io.Reader) error) error {
	resp, err := c.Get(h.url + path)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d %s", resp.StatusCode, resp.Header.Get("X-Starling-Error"))
	}
	return read(resp.Body)
}

// quantile is 0 for nothing.
func quantile(all []time.Duration, q float64) time.Duration {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[min(len(all)-1, int(q*float64(len(all))))].Round(10 * time.Microsecond)
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
