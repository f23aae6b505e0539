package load

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func TestHistogramQuantilesAreClose(t *testing.T) {
	draw := rand.New(rand.NewPCG(3, 4))
	var h Histogram
	var all []time.Duration
	for range 50000 {
		d := time.Duration(math.Exp(draw.Float64() * 30)) // 1 ns to hours
		h.Add(d)
		all = append(all, d)
	}
	slices.Sort(all)
	for _, q := range []float64{0, .01, .5, .9, .99, .999} {
		want := all[int(q*float64(len(all)))]
		if got := h.Quantile(q); math.Abs(float64(got-want)) > 0.005*float64(want)+1 {
			t.Errorf("quantile %v = %v, want %v within 0.5 %%", q, got, want)
		}
	}
	if last := all[len(all)-1]; h.Max() != last || h.Quantile(1) > last {
		t.Errorf("max = %v, quantile 1 = %v, want %v", h.Max(), h.Quantile(1), last)
	}
}

func TestHistogramEdges(t *testing.T) {
	var h Histogram
	if h.Quantile(.5) != 0 || h.Max() != 0 {
		t.Error("an empty histogram is not 0")
	}
	h.Add(-5)
	h.Add(math.MaxInt64)
	if h.Total() != 2 || h.Quantile(0) != 0 || h.Max() != math.MaxInt64 {
		t.Errorf("total %d, lowest %v, max %v", h.Total(), h.Quantile(0), h.Max())
	}
}

func TestHistogramStepsHaveNoGap(t *testing.T) {
	last := -1
	for v := uint64(0); v < 1<<14; v++ {
		if i := step(v); i != last && i != last+1 {
			t.Fatalf("step(%d) = %d after %d", v, i, last)
		} else {
			last = i
		}
		if m := middle(last); step(uint64(m)) != last {
			t.Fatalf("middle of step %d is %d, which is in step %d", last, m, step(uint64(m)))
		}
	}
}
