package meta

import (
	"log/slog"
	"strings"
	"testing"
	"time"
)

// TestAStepThatStandsStillIsTold: how long a step is under way and what it waits for is
// known; after two minutes the log says so, once; the next step begins anew.
func TestAStepThatStandsStillIsTold(t *testing.T) {
	var said strings.Builder
	w := begin(t, 1, 3, 2)
	k := w.nodes["n01"].keeper
	k.o.Log = slog.New(slog.NewTextHandler(&said, nil))
	step := func(s *Step) {
		m := k.Map().clone()
		m.Shards[1].Step = s
		k.mu.Lock()
		defer k.mu.Unlock()
		k.stepsOf(m)
	}
	expect := func(want Standing) {
		t.Helper()
		if got := k.Standing(1); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
	const why = "node n03 has not caught up"
	step(&Step{Kind: Move, Node: "n02", Reason: "one"})
	w.now += 90 * time.Second
	k.stand(1, why)
	expect(Standing{For: 90 * time.Second, Waits: why})
	if said.Len() > 0 {
		t.Errorf("after 90 s it says %s", said.String())
	}
	step(&Step{Kind: Move, Node: "n02", Reason: "another word for it"})
	w.now += 40 * time.Second
	for range 3 {
		k.stand(1, why)
	}
	expect(Standing{For: 130 * time.Second, Still: true, Waits: why})
	if got := said.String(); strings.Count(got, "level=WARN") != 1 || !strings.Contains(got, why) || !strings.Contains(got, "shard=1") || !strings.Contains(got, "for=2m10s") {
		t.Errorf("after 130 s it says %q", got)
	}
	k.stand(1, "")
	expect(Standing{For: 130 * time.Second, Still: true})
	step(&Step{Kind: Replace, Node: "n02"})
	k.stand(1, why)
	expect(Standing{Waits: why})
	step(nil)
	k.stand(1, why)
	expect(Standing{})
}

// TestAStepSaysWhatItWaitsFor: while a replica that is to come cannot, its shard's leader
// says why nothing happens.
func TestAStepSaysWhatItWaitsFor(t *testing.T) {
	w := begin(t, 1, 3, 2)
	w.add("", true)
	w.until("a step gives n04 a replica", time.Minute, func() error {
		for i, s := range w.newest().Shards {
			if _, wanted := s.Wants("n04"); wanted && s.Step != nil {
				w.nodes["n04"].cut = true
				return w.waitsAt(i)
			}
		}
		return errLost
	})
}

// waitsAt says what is wrong with what a shard's leader says that its step waits for.
func (w *world) waitsAt(shard int) error {
	l := w.leads(shard)
	if l == nil {
		return errLost
	}
	if why := l.box.keeper.Standing(shard).Waits; !strings.Contains(why, "n04") {
		return errLost
	}
	return nil
}
