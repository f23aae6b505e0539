package moving_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/starling-lb/starling/node"
	"github.com/starling-lb/starling/proxy"
	"github.com/starling-lb/starling/testcluster/llm"
)

// addedMovesNobody for a minute, with all as it is by default: sixty sessions talk at
// three backends, a fourth comes, and nobody is moved there, or anywhere. The planners
// looked all the time, and say why they moved none. (In virtual time the simulator
// plays it at several loads: TestOneEngineMoreMovesNobody.)
func addedMovesNobody(t *testing.T) {
	s := newStage(t, 4, llm.Options{}, func(_ *node.Config, p *proxy.PoolConfig) { p.Backends = p.Backends[:3] })
	r := &run{scene: scene{speed: 1, engines: 4, sessions: 60, turns: turnsEach}, stage: s}
	ctx, end := context.WithCancel(t.Context())
	var lives sync.WaitGroup
	defer lives.Wait()
	defer end()
	for i := range r.sessions {
		lives.Go(func() { r.talk(ctx, i) })
	}
	rest(ctx, 30*time.Second) // in which all have begun
	before := s.everywhere(t, "starling_moves_total")
	r.join(t)
	looks := s.everywhere(t, "starling_rebalance_looks_total")
	rest(ctx, time.Minute)
	moves, looked := s.everywhere(t, "starling_moves_total"), s.everywhere(t, "starling_rebalance_looks_total")-looks
	share, turns := r.lately(1 << 20)
	t.Logf("%v moves in a minute of %d turns, of which %.1f %% came to the new backend; %v looks", moves-before, turns, share, looked)
	if moves != before || before > 0 || len(r.wrong) > 0 {
		t.Errorf("%v moves before it came, %v in the minute after; wrong: %q", before, moves-before, r.wrong)
	}
	if looked < 16*10 || turns < 60 || s.looks(t, "even") == 0 { // sixteen shards, each five seconds
		t.Errorf("the planners looked %v times, at %d turns: %s", looked, turns, fmt.Sprint(s.pool(t, 0).Rebalance))
	}
}
