package backend

import "time"

// RebalanceConfig says when sessions are moved to make a pool's backends alike in
// load, and how many.
type RebalanceConfig struct {
	Enabled      bool          `yaml:"enabled"`
	Threshold    float64       `yaml:"threshold"`                  // of the coefficient of variation of the backends' step times: above it, twice in a row, sessions move
	Interval     time.Duration `yaml:"interval"`                   // between two looks
	Share        float64       `yaml:"share"`                      // of the streams that are too many, that one look may move
	MinResidence time.Duration `yaml:"min_residence"`              // a session that was moved stays for so long
	MaxRate      int           `yaml:"max_rate" auto:"-1" off:"0"` // requests/s of all nodes from which nothing moves; auto: twice the 5-minute mean
}

// DefaultRebalance holds the contract's defaults.
func DefaultRebalance() RebalanceConfig {
	return RebalanceConfig{Enabled: true, Threshold: 0.3, Interval: 5 * time.Second, Share: 0.2, MinResidence: 5 * time.Minute, MaxRate: -1}
}

// Validate reports every fault by the key it concerns.
func (c RebalanceConfig) Validate(fault func(key, format string, args ...any)) {
	if c.Threshold <= 0 || c.Threshold > 10 {
		fault("threshold", "%v is out of range; write a number above 0 and up to 10, such as 0.3: unlike backends are at 0.2 when all is well", c.Threshold)
	}
	if c.Interval < 100*time.Millisecond || c.Interval > time.Hour {
		fault("interval", "%v is out of range; write a time from 100ms to 1h", c.Interval)
	}
	if c.Share <= 0 || c.Share > 1 {
		fault("share", "%v is out of range; write a number above 0 and up to 1, such as 0.2 for a fifth", c.Share)
	}
	if c.MinResidence < 0 {
		fault("min_residence", "%v is negative; write 0s for none, or a time such as 5m", c.MinResidence)
	}
}

// Crowd is how many streams are at the backend as p2c counts them: on all nodes, as
// far as these have said, and failures that weigh like streams.
func (b *Backend) Crowd(now time.Time) float64 {
	s := b.pool.now.Load()
	c := choice{pool: b.pool, set: s, list: s.list, now: now}
	return c.streams(b) - 1
}

// Knee is how many streams at a backend slow each other to half the speed of one
// alone.
func (p *Pool) Knee() float64 { return p.now.Load().knee }

// Started is how many streams this node ever began in the pool.
func (p *Pool) Started() uint64 { return uint64(p.flights.Load() / oneStart) }

// paceWindow is for how long a request counts in Pace: about as long as between two
// looks of the planners, so that few requests are no more of a spike there than where
// they are counted.
const paceWindow = 5 * time.Second

// Pace is how many streams a second begin at this node lately, for the others to hear.
func (p *Pool) Pace() float64 {
	if v := p.lately.Load(); v >= leastPace {
		return v
	}
	return 0
}

// leastPace is about the least that reports can say: a request of seven seconds ago.
const leastPace = 0.05

// HearPace publishes how many streams a second begin at the other nodes, as they say.
func (p *Pool) HearPace(elsewhere float64) { p.others.Store(elsewhere) }

// PaceElsewhere is what HearPace was told.
func (p *Pool) PaceElsewhere() float64 { return p.others.Load() }
