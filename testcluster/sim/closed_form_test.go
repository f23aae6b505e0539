package sim

import (
	"math"
	"testing"
)

// The model itself is checked where queueing theory has a formula: one engine,
// Poisson arrivals, sizes as lognormal as everywhere else.

// one is a cell with a single engine that is never full.
func one(e Engine, rho float64, requests int) Cell {
	e.Queue = requests
	return Cell{Proxies: 1, Engines: []Engine{e}, Load: Load{Requests: requests, Rho: rho}, Seed: 7, Rule: Rule{Policy: Oracle}}
}

func near(t *testing.T, what string, got, want, within float64) {
	t.Helper()
	if math.Abs(got/want-1) > within {
		t.Errorf("%s is %.4g, the formula says %.4g", what, got, want)
	}
}

// TestProcessorSharing: with M/G/1-PS a job of any size takes 1/(1-rho) times as
// long as alone, on average (Kleinrock 1967).
func TestProcessorSharing(t *testing.T) {
	for _, rho := range []float64{0.3, 0.6, 0.8} {
		c := one(Engine{Speed: 2, Knee: 1, Slots: 1 << 20}, rho, 200_000)
		r := play(c)
		var small, large, all spread
		for i, x := range r.tally.slowdown {
			x *= 2 // the engine is twice as fast as what slowdown is measured by
			all.add(x)
			if work := r.tally.latency[i] / r.tally.slowdown[i]; work < 2 {
				small.add(x)
			} else if work > 10 {
				large.add(x)
			}
		}
		near(t, "the mean slowdown", all.sum/all.n, 1/(1-rho), 0.05)
		near(t, "that of small jobs", small.sum/small.n, 1/(1-rho), 0.05)
		near(t, "that of large jobs", large.sum/large.n, 1/(1-rho), 0.05)
	}
}

// TestPollaczekKhinchine: with M/G/1-FIFO the mean wait is
// lambda E[S^2] / (2 (1-rho)).
func TestPollaczekKhinchine(t *testing.T) {
	for _, rho := range []float64{0.3, 0.6, 0.8} {
		r := play(one(Engine{Speed: 1, Knee: math.Inf(1), Slots: 1}, rho, 200_000))
		var size, wait spread
		for _, j := range r.jobs {
			size.add(j.Work())
		}
		for i, took := range r.tally.latency {
			wait.add(took - took/r.tally.slowdown[i])
		}
		lambda := rho / (size.sum / size.n)
		near(t, "the mean wait", wait.sum/wait.n, lambda*size.squares/size.n/(2*(1-rho)), 0.06)
	}
}

// TestBatchingWithLoss: an engine of c slots, no queue and any speeds by the
// number of streams has n streams with probability proportional to the product
// of lambda E[S] / (k rate(k)) for k up to n, whatever the sizes' distribution is
// (Cohen 1979): processor sharing does not feel it. What comes when it is full
// is lost.
func TestBatchingWithLoss(t *testing.T) {
	for _, rho := range []float64{0.8, 1.0, 1.2} {
		c := one(Batching(1), rho, 300_000)
		c.Engines[0].Queue = 0
		r := play(c)
		offered := rho * c.Engines[0].capacity()
		weight, sum, mean := 1.0, 1.0, 0.0
		for n := 1; n <= c.Engines[0].Slots; n++ {
			weight *= offered / (float64(n) * c.Engines[0].rate(n))
			sum += weight
			mean += float64(n) * weight
		}
		f := r.tally.figures()
		if lost := weight / sum; math.Abs(f.Rejected-lost) > 0.01 {
			t.Errorf("at rho %v a share of %.4f is lost, the formula says %.4f", rho, f.Rejected, lost)
		}
		var took spread
		for _, x := range r.tally.latency {
			took.add(x)
		}
		near(t, "the mean number of streams", took.sum/(r.jobs[len(r.jobs)-1].At-r.from), mean/sum, 0.03) // Little's law
	}
}

// TestManySlotsKeepUp: with eight slots of full speed a stream waits or it does
// not, and is never faster than alone; how many wait is about Erlang's C.
func TestManySlotsKeepUp(t *testing.T) {
	r := play(one(FIFO(1), 0.5, 100_000))
	var waited int
	for _, x := range r.tally.slowdown {
		if x < 1-1e-9 {
			t.Fatalf("a stream took %v of its time alone", x)
		}
		if x > 1+1e-9 {
			waited++
		}
	}
	// Erlang's C(8, 4) is 0.059, for exponential sizes; it hardly depends on them.
	near(t, "the share that waits", float64(waited)/float64(len(r.tally.slowdown)), 0.059, 0.15)
}
