package testcluster_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/starling-lb/starling/node"
	"github.com/starling-lb/starling/testcluster"
)

// BenchmarkIdleNodes prints what three whole nodes of 64 shards cost that have
// nothing to do, all in one process: first without sessions, then with a thousand
// that every node uses, so that their feeds and leases are there, too.
//
//	go test ./testcluster -run '^$' -bench IdleNodes -benchtime 1x
func BenchmarkIdleNodes(b *testing.B) {
	const shards, span, sessions = 64, 20 * time.Second, 1000
	c, err := testcluster.Start(b.Context(), testcluster.Options{Nodes: 3, Backends: 3, Config: func(cfg *node.Config) {
		sessionsOn(cfg)
		exposed(cfg)
		cfg.Shards.Count = shards
	}})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = c.Stop(b.Context()) }() // an end of its own makes no figure
	for led := 0; led < shards; <-time.After(100 * time.Millisecond) {
		led = 0
		for i := range 3 {
			led += c.Node(i).Status().Shards.Led
		}
	}
	<-time.After(10 * time.Second) // until the members have come, and their leaders are spread
	for b.Loop() {
		b.ReportMetric(idle(span), "%core-shards")
		client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 4}}
		for s := range sessions {
			for i := range 3 {
				if _, err := sessionTurn(client, c.Node(i), fmt.Sprint("session ", s)); err != nil {
					b.Fatal(err)
				}
			}
		}
		client.CloseIdleConnections()
		b.ReportMetric(idle(span), "%core-sessions")
		b.ReportMetric(float64(resident())/(1<<20), "MiB")
	}
}

// idle is the share of one core that the process takes over a time.
func idle(span time.Duration) float64 {
	began, at := spent(), time.Now()
	<-time.After(span)
	return 100 * float64(spent()-began) / float64(time.Since(at))
}

func spent() time.Duration {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
