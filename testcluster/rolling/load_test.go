package rolling

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"
)

// load is clients behind a balancer that asks nodes whether they are ready, as one
// should: turns of sessions, and streams of nobody's.
type load struct {
	urls   []string // of the nodes' proxies
	ready  []string // what the balancer asks
	client *http.Client

	mu     sync.Mutex // guards what follows
	takes  []bool     // nodes that the balancer sends to
	homes  map[string]string
	whole  int // streams that ended as they should
	again  int // requests that a node turned away, and another took
	faults []string
	cancel context.CancelFunc
	tasks  sync.WaitGroup
}

const (
	users   = 20
	askEach = 20 * time.Millisecond // how often the balancer asks
)

// newLoad has clients come until its stop.
func (f *fleet) newLoad() *load {
	l := &load{urls: f.urls, homes: map[string]string{}, takes: make([]bool, len(f.nodes))}
	l.client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
	for _, at := range f.at {
		l.ready = append(l.ready, "http://"+at.admin+"/readyz")
	}
	ctx, cancel := context.WithCancel(f.t.Context())
	l.cancel = cancel
	for i := range l.ready {
		l.tasks.Go(func() { l.balance(ctx, i) })
	}
	for i := range users {
		l.tasks.Go(func() { l.user(ctx, rand.New(rand.NewPCG(1, uint64(i)))) })
	}
	f.t.Cleanup(l.stop)
	return l
}

func (l *load) stop() {
	l.cancel()
	l.tasks.Wait()
}

// balance asks one node, again and again, whether it may get traffic.
func (l *load) balance(ctx context.Context, i int) {
	tick := time.NewTicker(askEach)
	defer tick.Stop()
	for ctx.Err() == nil {
		resp, err := l.client.Get(l.ready[i])
		if err == nil {
			resp.Body.Close()
		}
		l.mu.Lock()
		l.takes[i] = err == nil && resp.StatusCode == http.StatusOK
		l.mu.Unlock()
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

func (l *load) pick(dice *rand.Rand) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	var up []int
	for i, yes := range l.takes {
		if yes {
			up = append(up, i)
		}
	}
	if len(up) == 0 {
		return -1
	}
	return up[dice.IntN(len(up))]
}

func (l *load) user(ctx context.Context, dice *rand.Rand) {
	keys := sessions()
	for ctx.Err() == nil {
		key := ""
		if dice.IntN(3) > 0 {
			key = keys[dice.IntN(len(keys))]
		}
		l.stream(ctx, dice, key)
		select {
		case <-time.After(time.Duration(dice.IntN(100)) * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

var errDraining = errors.New("draining")

// stream asks until a node takes the request; then it has to end whole.
func (l *load) stream(ctx context.Context, dice *rand.Rand, key string) {
	for ctx.Err() == nil {
		i := l.pick(dice)
		if i < 0 {
			select { // before the balancer has asked for the first time
			case <-time.After(askEach):
			case <-ctx.Done():
			}
			continue
		}
		home, err := l.ask(l.urls[i], key)
		l.mu.Lock()
		switch {
		case errors.Is(err, errDraining):
			l.again++
			l.takes[i] = false // until it has been asked again
		case err != nil:
			l.faults = append(l.faults, fmt.Sprintf("n%d: %v", i+1, err))
		default:
			l.whole++
			if was := l.homes[key]; key != "" && was != "" && was != home {
				l.faults = append(l.faults, fmt.Sprintf("session %s was at %s, and is at %s", key, was, home))
			}
			l.homes[key] = home
		}
		l.mu.Unlock()
		if !errors.Is(err, errDraining) {
			return
		}
	}
}

// ask has no context: a stream that has begun is to end by itself.
func (l *load) ask(url, key string) (home string, err error) {
	req, err := http.NewRequest(http.MethodGet, url+"/", nil)
	if err != nil {
		return "", err
	}
	if key != "" {
		req.Header.Set("X-Session-ID", key)
	}
	resp, err := l.client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	switch {
	case resp.StatusCode == http.StatusServiceUnavailable && resp.Header.Get("X-Starling-Error") == "draining":
		return "", errDraining
	case resp.StatusCode != http.StatusOK:
		return "", fmt.Errorf("status %d: %s", resp.StatusCode, text)
	case err != nil:
		return "", fmt.Errorf("cut after %d bytes: %w", len(text), err)
	case strings.Count(string(text), "data: x\n\n") != events || !strings.HasSuffix(string(text), "[DONE]\n\n"):
		return "", fmt.Errorf("an answer of %q", text)
	}
	return resp.Header.Get("X-Backend"), nil
}

// wrong is what clients complain of.
func (l *load) wrong() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.faults
}

// served is how many streams have ended whole.
func (l *load) served() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.whole
}

// known is how many sessions have a home.
func (l *load) known() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key := range l.homes {
		if key != "" {
			n++
		}
	}
	return n
}
