package shards

import "testing"

// TestWithoutACure takes one rule out at a time: the simulation then sees a promise
// broken that holds with it.
func TestWithoutACure(t *testing.T) {
	for name, without := range map[string]func(*world){
		"ask time":  func(w *world) { w.without = cureAskTime },
		"grace":     func(w *world) { w.without = cureGrace },
		"quorum":    func(w *world) { w.noQuorum = true },
		"barrier":   func(w *world) { w.noProof = true },
		"number":    func(w *world) { w.without = cureNumber },
		"silence":   func(w *world) { w.without = cureSilence },
		"gap":       func(w *world) { w.without = cureGap },
		"count":     func(w *world) { w.without = cureCount },
		"look":      func(w *world) { w.without = cureLook },
		"holders":   func(w *world) { w.without = cureHolders },
		"let go":    func(w *world) { w.without = cureLetGo },
		"outcome":   func(w *world) { w.without = cureOutcome },
		"term ends": func(w *world) { w.without = cureTermEnds },
		"old term":  func(w *world) { w.without = cureOldTerm },
		"own lease": func(w *world) { w.without = cureOwnLease },
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(60) {
				if faults := simulate(t, seed, without); len(faults) > 0 {
					t.Logf("seed %d: %s", seed, faults[0])
					return
				}
			}
			t.Error("nothing broke")
		})
	}
}
