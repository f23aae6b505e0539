package hostile

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/starling-lb/starling/testcluster/apart"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var hostileFull = flag.Bool("hostile.full", false, "TestHostile in full: each attack alone, in longer rounds")

// TestNodeOfItsOwn is what the victim's process runs; in the test's own there is nothing
// for it to do.
func TestNodeOfItsOwn(t *testing.T) {
	if err := apart.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// victim is the node, in a process of its own.
type victim struct {
	*apart.Process
	addr string
}

// The limits are low enough for a few hundred hostile clients to reach them. A
// place at the node is every attack's aim, but with max_client_connections one
// address has a part of them. Honest clients are not counted, or those of a machine
// that is slow for a while would be too many.
const config = `
node: {name: n, data_dir: %q}
admin: {address: "127.0.0.1:0"}
log: {level: error}
listeners: [{address: "127.0.0.1:0", max_connections: 500, max_client_connections: %d, trusted_proxies: [127.0.0.1/32]}]
pools:
  llm:
    backends: [{id: b1, url: %q}, {id: b2, url: %q}]
    backend: {engine: none}
    health: {enabled: false}
`

func newVictim(t *testing.T, perClient int) *victim {
	dir := t.TempDir()
	path := filepath.Join(dir, "n.yaml")
	text := fmt.Sprintf(config, filepath.Join(dir, "data"), perClient, newOrigin(t), newOrigin(t))
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := apart.Start("TestNodeOfItsOwn", path, os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.End() })
	return &victim{p, p.Proxy}
}

// memory is what the node's process holds, in MiB.
func (v *victim) memory(t *testing.T) int {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", v.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); f[0] == "VmRSS:" {
			n, err := strconv.Atoi(f[1])
			if err != nil {
				t.Fatal(err)
			}
			return n >> 10
		}
	}
	t.Fatal("no VmRSS")
	return 0
}

// used is how long the node's process has run, on all cores.
func (v *victim) used(t *testing.T) time.Duration {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", v.Pid))
	if err != nil {
		t.Fatal(err)
	}
	f := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	var ticks int
	for _, s := range f[11:13] { // utime, stime
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

// side is rounds of one kind, summed.
type side struct {
	count
	took, used time.Duration
	memory     int // the most, in MiB
}

// round has honest clients come, and the hostile ones besides.
func (s *side) round(t *testing.T, v *victim, h *honest, lasts time.Duration, all []attack) {
	ctx, cancel := context.WithCancel(t.Context())
	var enemies sync.WaitGroup
	for _, a := range all {
		for range a.clients {
			enemies.Go(func() { a.run(ctx, v.addr) })
		}
	}
	if len(all) > 0 {
		pause(ctx, lasts/4) // they take their places first
	}
	began, used := time.Now(), v.used(t)
	s.add(h.run(t.Context(), lasts))
	s.took, s.used = s.took+time.Since(began), s.used+v.used(t)-used
	s.memory = max(s.memory, v.memory(t))
	cancel()
	enemies.Wait()
}

func (s *side) String() string {
	return fmt.Sprintf("%d of %d requests, p50 %v p99 %v; %d of %d streams, %d events, late by p99 %v; %.0f %% of a core, %d MiB",
		s.answered, s.sent, quantile(s.waits, 0.5), quantile(s.waits, 0.99), s.whole, s.begun, s.events, quantile(s.gaps, 0.99),
		100*s.used.Seconds()/s.took.Seconds(), s.memory)
}

const atLeast = 0.95 // of what they get without hostile clients

// compare has rounds with and without the attacks in turn.
func compare(t *testing.T, v *victim, rounds int, lasts time.Duration, all ...attack) {
	h := &honest{url: "http://" + v.addr, requests: 100, streams: 20}
	var calm, under side
	for range rounds {
		calm.round(t, v, h, lasts, nil)
		under.round(t, v, h, lasts, all)
	}
	requests, streams := ratio(under.answered, calm.answered), ratio(under.events, calm.events)
	t.Logf("without: %v", &calm)
	t.Logf("under:   %v", &under)
	t.Logf("%.1f %% of requests, %.1f %% of events; faults %v, without %v", 100*requests, 100*streams, under.faults, calm.faults)
	if requests < atLeast || streams < atLeast {
		t.Errorf("honest clients got %.3f of their answers and %.3f of their events, want %v", requests, streams, atLeast)
	}
	if grown := under.memory - calm.memory; grown > mayGrow {
		t.Errorf("the node's memory grew from %d to %d MiB, by more than %d", calm.memory, under.memory, mayGrow)
	}
	if calm.answered == 0 || calm.events == 0 {
		t.Error("honest clients got nothing in either case")
	}
}

// mayGrow is how much memory hostile clients may cost, in MiB: 500 connections with
// the largest heads, and what the collector leaves lying.
const mayGrow = 200

func ratio(a, b int) float64 { return float64(a) / float64(max(1, b)) }

// TestHostile: whatever hostile clients do, from one address, honest ones get at
// least 95 % of what they get without them. In the short form all attacks come at
// once, each with few clients; in the full one each alone, with many.
func TestHostile(t *testing.T) {
	if !*hostileFull {
		all := attacks()
		for i := range all {
			all[i].clients = max(2, all[i].clients/10)
		}
		compare(t, newVictim(t, 150), 2, time.Second, all...)
		return
	}
	for _, a := range attacks() {
		t.Run(a.name, func(t *testing.T) { compare(t, newVictim(t, 150), 3, 4*time.Second, a) })
	}
}

// TestHostileCrowd: one address holds every place of a listener without a limit for
// one address, as far as that can be done without a request.
func TestHostileCrowd(t *testing.T) {
	rounds, lasts := 1, 1500*time.Millisecond
	if *hostileFull {
		rounds, lasts = 3, 4*time.Second
	}
	var crowd []attack
	for _, a := range attacks() {
		switch a.name {
		case "slow heads", "idle from the start", "idle after a request":
			crowd = append(crowd, a)
		}
	}
	if len(crowd) != 3 {
		t.Fatal("an attack has another name")
	}
	compare(t, newVictim(t, 0), rounds, lasts, crowd...)
}
