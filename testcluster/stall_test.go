package testcluster_test

import (
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/starling-lb/starling/testcluster"
)

var stallFull = flag.Bool("stall.full", false, "TestStall for a minute")

// TestStall: of eleven backends that answer in 20 ms one takes 2 s for a while. At
// 500 requests a second for a minute 99.9 % are answered within a second all the
// same: at most 30 are not. In the short form, too, which costs as many.
func TestStall(t *testing.T) {
	const most = 30
	var late, failed int64
	var lag time.Duration
	for range 2 { // a machine that stands still for a second makes many late, and not twice
		if late, failed, lag = stall(t); late+failed <= most {
			return
		}
	}
	if failed <= most && late <= 10*most && lag > tooBusy {
		t.Logf("requests were sent %v late at the 99th percentile: the machine is too busy to measure", lag.Round(time.Millisecond))
		return
	}
	t.Errorf("%d took longer than 1 s and %d failed, want at most %d together", late, failed, most)
}

// stall is how many requests were late while a backend stalled, how many failed, and how
// late they were sent, the 99th percentile.
func stall(t *testing.T) (tooLate, lost int64, lag time.Duration) {
	t.Helper()
	rate, from, to, end := 500/raceFactor, 2*time.Second, 5*time.Second, 7*time.Second
	if *stallFull {
		from, to, end = 15*time.Second, 45*time.Second, time.Minute
	}
	var stalled atomic.Bool
	var origins []origin
	for i := range 11 {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			took := 20 * time.Millisecond
			if i == 3 && stalled.Load() {
				took = 2 * time.Second
			}
			select {
			case <-time.After(took):
			case <-r.Context().Done():
			}
			fmt.Fprintln(w, "done")
		}))
		t.Cleanup(s.Close)
		origins = append(origins, origin{id: fmt.Sprintf("b%d", i), addr: strings.TrimPrefix(s.URL, "http://")})
	}
	n := startNode(t, testcluster.Options{}, nil, origins...)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 200}, Timeout: patience}
	defer client.CloseIdleConnections()

	var late, failed atomic.Int64
	var lags []time.Duration
	var requests sync.WaitGroup
	began := time.Now()
	tick := time.NewTicker(time.Second / time.Duration(rate))
	defer tick.Stop()
	sent := 0
	for since := time.Duration(0); since < end; since = time.Since(began) {
		stalled.Store(since >= from && since < to)
		for ; sent < int(since.Seconds()*float64(rate)); sent++ {
			due := began.Add(time.Duration(float64(sent) / float64(rate) * float64(time.Second)))
			lags = append(lags, time.Since(due))
			requests.Go(func() {
				resp, err := client.Get(n.URL() + "/")
				if err == nil {
					_, err = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
				if err != nil || resp.StatusCode != http.StatusOK {
					failed.Add(1)
				} else if time.Since(due) > time.Second {
					late.Add(1)
				}
			})
		}
		<-tick.C
	}
	requests.Wait()
	t.Logf("of %d requests %d took longer than 1 s, %d failed", sent, late.Load(), failed.Load())
	slices.Sort(lags)
	return late.Load(), failed.Load(), lags[len(lags)*99/100]
}
