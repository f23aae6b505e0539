package rolling

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/starling-lb/starling/node/api"
)

// TestLeadersGoFirst: a node that stops leads nothing any more long before its last
// stream ends. Sessions begin at the others all the time, for which there must be
// leaders, and wait for no election.
func TestLeadersGoFirst(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	s := holding(t, release)
	f := newFleet(t, 3, func(int) string {
		return fmt.Sprintf(`pools:
  llm:
    backends: [{id: b1, url: %q}]
    backend: {engine: none}
    health: {enabled: false}
    sticky: {consistency: strict, bind_timeout: 30s}
    rebalance: {enabled: false}
`, s.URL)
	})
	leaves := f.leader()
	held, err := f.turn(leaves, "/hold", "held")
	if err != nil {
		t.Fatal(err)
	}
	defer held.Body.Close()
	others := slices.DeleteFunc([]int{0, 1, 2}, func(i int) bool { return i == leaves })
	var worst time.Duration
	k := 0
	asks := func() {
		t.Helper()
		k++
		began := time.Now()
		resp, err := f.turn(others[k%2], "/", fmt.Sprint("new-", k))
		if err != nil {
			t.Fatalf("a new session while n%d stops: %v", leaves+1, err)
		}
		_ = resp.Body.Close()
		worst = max(worst, time.Since(began))
	}
	for range 4 * shards {
		asks()
	}
	usual := worst
	worst = 0
	stopped := make(chan int64, 1)
	go func() { stopped <- f.stop(leaves, 2*patience) }()
	f.eventually(func() string {
		asks()
		return f.led(others[0], leaves)
	})
	select { // it goes on
	case cut := <-stopped:
		t.Fatalf("it has ended with a stream that runs; %d cut", cut)
	default:
	}
	close(release)
	if text, err := io.ReadAll(bufio.NewReader(held.Body)); err != nil || string(text) != "data: x\n\n" {
		t.Errorf("the stream ended with %q, %v", text, err)
	}
	for cut := int64(-1); cut < 0; {
		asks()
		select {
		case cut = <-stopped:
			if cut != 0 {
				t.Errorf("%d streams were cut", cut)
			}
		default:
		}
	}
	for range 4 * shards { // nor is there an election after its end
		asks()
	}
	if t.Logf("%d sessions began, each within %v; before it stopped, within %v", k, worst, usual); worst > time.Second+10*usual {
		t.Errorf("a session waited for %v", worst)
	}
}

// leader is the node that leads most of the shards.
func (f *fleet) leader() (node int) {
	f.t.Helper()
	var l api.ShardList
	if err := f.admin[0].Get(f.t.Context(), &l, "shards"); err != nil {
		f.t.Fatal(err)
	}
	leads := make([]int, len(f.nodes))
	for _, s := range l.Shards {
		for i := range leads {
			if s.Leader == fmt.Sprint("n", i+1) {
				leads[i]++
			}
		}
	}
	return slices.Index(leads, slices.Max(leads))
}

// led is what a node still leads, or nobody does, by what another one says.
func (f *fleet) led(by, node int) string {
	var l api.ShardList
	if err := f.admin[by].Get(f.t.Context(), &l, "shards"); err != nil {
		return err.Error()
	}
	var wrong []string
	for _, s := range l.Shards {
		if s.Leader == "" || s.Leader == fmt.Sprint("n", node+1) {
			wrong = append(wrong, fmt.Sprintf("shard %d is led by %q", s.ID, s.Leader))
		}
	}
	return strings.Join(wrong, ", ")
}

// turn is a session's at a node, up to the head of its answer.
func (f *fleet) turn(node int, path, session string) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(f.t.Context(), 2*patience)
	f.t.Cleanup(cancel)
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, f.urls[node]+path, nil)
	if err != nil {
		return nil, err
	}
	q.Header.Set("X-Session-ID", session)
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(q)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errors.Join(errors.New(resp.Status), resp.Body.Close())
	}
	return resp, err
}

// holding is a backend that answers at once, and a turn at /hold for as long as that is
// not released.
func holding(t *testing.T, release <-chan struct{}) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		_, _ = io.WriteString(w, "data: x\n\n")
		if q.URL.Path == "/hold" {
			w.(http.Flusher).Flush()
			select {
			case <-release:
			case <-q.Context().Done():
			}
		}
	}))
	t.Cleanup(s.Close)
	return s
}
