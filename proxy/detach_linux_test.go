package proxy_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/starling-lb/starling/proxy/backend"
)

// Streams that are quiet hold no goroutine; that is what the rest is for.
func TestQuietStreamsHoldNoGoroutine(t *testing.T) {
	r := newRig(t, false, nil)
	const n = 50
	before := runtime.NumGoroutine()
	for range n {
		client := r.connect("GET / HTTP/1.1\r\nHost: t\r\n\r\n")
		r.arrived().send(eventStream + chunk("data: 1\n\n"))
		client.answer()
	}
	eventually(t, 10*time.Second, func() string {
		if now := runtime.NumGoroutine(); now > before+n/2 {
			return fmt.Sprintf("%d goroutines, %d before %d streams", now, before, n)
		}
		return ""
	})
	if got := r.server.InFlight(); got != n {
		t.Errorf("%d streams are counted, want %d", got, n)
	}
	r.stopNow()
	r.atRest(5*time.Second, backend.Drained, n)
}
