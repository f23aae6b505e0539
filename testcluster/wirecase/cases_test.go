package wirecase

import (
	"os"
	"testing"
	"time"
)

// TestCases plays every case on every loop, all on one proxy: what one leaves
// behind on a kept connection shows in another.
func TestCases(t *testing.T) {
	cases, err := Load(os.DirFS("testdata"))
	if err != nil {
		t.Fatal(err)
	}
	onEachLoop(t, func(t *testing.T, l loop) {
		stage := NewStage()
		r := newRig(t, l, setup{backends: []string{started(t, stage.Serve).Addr(), started(t, stage.Serve).Addr()}})
		target := Target{Addr: r.addr, Stage: stage, Patience: 8 * time.Second} // under timeouts.request_header, which closes by itself
		if err := Sane(r.ctx, target); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			for _, head := range stage.Strays() {
				t.Errorf("a backend got bytes of no case: %s", quoted(head))
			}
		})
		for _, c := range cases {
			t.Run(c.ID, func(t *testing.T) {
				t.Parallel()
				timed(t, func() error {
					err := Run(deadline(t), c, target)
					if err != nil && !isLate(err) {
						t.Fatal(err) // at once
					}
					return err
				})
			})
		}
	})
}
