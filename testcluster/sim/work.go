package sim

import (
	"math"
	"math/rand/v2"

	"github.com/starling-lb/starling/testcluster/llm"
)

// Job is one request as it comes: when, to which proxy, and how much it is.
type Job struct {
	At     float64 // seconds since the run began
	Proxy  int
	Key    uint64 // of its client, for rules that hash
	Prompt int    // tokens
	Output int    // tokens
}

func (j *Job) prefill() float64 { return float64(j.Prompt) / prefillRate }

// Work is how long the job takes alone at an engine of speed 1, in seconds.
func (j *Job) Work() float64 { return j.prefill() + float64(j.Output)/decodeRate }

// Load says which jobs a run gets.
type Load struct {
	Requests int
	Rho      float64   // of what all engines that are there from the start do with every slot taken
	Sigma    float64   // of the lognormal lengths of answers; 0: 1.2
	Prompt   float64   // tokens of a prompt in the median; 0: 800
	Rows     []llm.Row // a trace to take arrivals and sizes from, its gaps scaled to Rho; then Requests is left out
}

const clients = 5000 // that the requests come from, each as often

const (
	outputMedian = 4.0 // seconds of decoding alone
	outputLeast  = 0.5
	outputMost   = 60.0
	outputSigma  = 1.2
	promptMedian = 800.0 // tokens
	promptSigma  = 1.0
	promptMost   = 32_000.0
)

// Jobs are the cell's requests, in order of arrival. The same seed makes the same
// ones; how many proxies there are changes only where each comes in.
func (c *Cell) Jobs() []Job {
	l := c.Load
	jobs := l.sizes(rand.New(rand.NewPCG(c.Seed, 1)))
	work := 0.0
	for i := range jobs {
		work += jobs[i].Work()
	}
	// The mean of these very jobs, so that every seed has the same load.
	span := work / (l.Rho * c.capacity())
	if l.Rows != nil {
		stretch(jobs, span)
	} else {
		scatter(jobs, span, rand.New(rand.NewPCG(c.Seed, 2)))
	}
	dice := rand.New(rand.NewPCG(c.Seed, 3))
	for i := range jobs {
		jobs[i].Proxy = dice.IntN(c.Proxies)
		jobs[i].Key = rand.New(rand.NewPCG(c.Seed, uint64(dice.IntN(clients)))).Uint64()
	}
	return jobs
}

func (l Load) sizes(dice *rand.Rand) []Job {
	if l.Rows != nil {
		jobs := make([]Job, len(l.Rows))
		for i, r := range l.Rows {
			jobs[i] = Job{At: r.At.Seconds(), Prompt: r.Context, Output: r.Generated}
		}
		return jobs
	}
	sigma := l.Sigma
	if sigma == 0 {
		sigma = outputSigma
	}
	median := l.Prompt
	if median == 0 {
		median = promptMedian
	}
	jobs := make([]Job, l.Requests)
	for i := range jobs {
		decode := min(max(outputMedian*math.Exp(sigma*dice.NormFloat64()), outputLeast), outputMost)
		prompt := min(max(median*math.Exp(promptSigma*dice.NormFloat64()), 1), promptMost)
		jobs[i].Output = int(math.Round(decode * decodeRate))
		jobs[i].Prompt = int(prompt)
	}
	return jobs
}

// stretch scales the gaps of a trace so that it takes span seconds.
func stretch(jobs []Job, span float64) {
	scale := span / jobs[len(jobs)-1].At
	for i := range jobs {
		jobs[i].At *= scale
	}
}

// scatter makes arrivals a Poisson process of span seconds.
func scatter(jobs []Job, span float64, dice *rand.Rand) {
	at := 0.0
	for i := range jobs {
		at += dice.ExpFloat64()
		jobs[i].At = at
	}
	stretch(jobs, span)
}
