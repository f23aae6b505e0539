package sim

import (
	"math"
	"slices"
)

// tally collects what is measured.
type tally struct {
	slowdown, first, latency   []float64
	requests, rejected, failed int
	attempts                   []int   // by server
	loadCV, stepCV             float64 // sums over the samples
	samples                    int
	moves                      int
}

// Quantiles of one figure over all requests that were answered.
type Quantiles struct{ P50, P95, P99, P999 float64 }

// Figures say how a run went.
type Figures struct {
	Slowdown Quantiles // latency over the time alone at an engine of speed 1
	TTFT     Quantiles // seconds until the first token
	Latency  Quantiles // seconds until the last

	Requests int       // that were measured
	Rejected float64   // share of them that found no place
	Failed   float64   // share of them whose every attempt failed
	LoadCV   float64   // of streams over speed, among the engines; the mean over time
	StepCV   float64   // of the time of a step
	Attempts []float64 // by engine, as shares of the requests
	Moves    float64   // of sessions, planned ones, per 100 requests
}

func (t *tally) done(q *request, now float64) {
	took := now - q.job.At
	t.latency = append(t.latency, took)
	t.slowdown = append(t.slowdown, took/q.job.Work())
	t.first = append(t.first, q.first-q.job.At)
}

func (t *tally) sample(servers []server) {
	var load, step spread
	for i := range servers {
		s := &servers[i]
		if s.absent || s.refuses || s.factor == 0 {
			continue
		}
		speed := s.Speed * s.factor
		load.add(float64(s.held()) / speed)
		step.add((1 + float64(s.held())/s.Knee) / speed)
	}
	t.loadCV += load.cv()
	t.stepCV += step.cv()
	t.samples++
}

func (t *tally) figures() Figures {
	f := Figures{
		Slowdown: quantiles(t.slowdown), TTFT: quantiles(t.first), Latency: quantiles(t.latency),
		Requests: t.requests,
		Rejected: float64(t.rejected) / float64(t.requests),
		Failed:   float64(t.failed) / float64(t.requests),
		LoadCV:   t.loadCV / float64(t.samples),
		StepCV:   t.stepCV / float64(t.samples),
		Moves:    100 * float64(t.moves) / float64(t.requests),
	}
	for _, n := range t.attempts {
		f.Attempts = append(f.Attempts, float64(n)/float64(t.requests))
	}
	return f
}

func quantiles(of []float64) Quantiles {
	slices.Sort(of)
	at := func(q float64) float64 {
		if len(of) == 0 {
			return math.NaN()
		}
		return of[min(int(math.Ceil(q*float64(len(of))))-1, len(of)-1)]
	}
	return Quantiles{at(0.5), at(0.95), at(0.99), at(0.999)}
}

// spread sums up figures to say how far apart they are.
type spread struct{ n, sum, squares float64 }

func (s *spread) add(x float64) { s.n, s.sum, s.squares = s.n+1, s.sum+x, s.squares+x*x }

// cv is the standard deviation over the mean; 0 where all are 0.
func (s *spread) cv() float64 {
	if s.sum == 0 {
		return 0
	}
	mean := s.sum / s.n
	return math.Sqrt(max(0, s.squares/s.n-mean*mean)) / mean
}
