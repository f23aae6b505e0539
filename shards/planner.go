package shards

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/starling-lb/starling/proxy/backend"
)

// Planner decides which sessions of one shard and pool move, so that the pool's
// backends take about the same time for a step. Good placement of first turns
// already balances, and a move costs what the old backend had cached: so it moves
// little, seldom, and not at all while it cannot see well.
//
// It is pure: no clock, no random. The leader of the shard asks it once every
// interval, makes a hold of what it answers, and forgets it with its term.
type Planner struct {
	config        backend.RebalanceConfig
	shard, shards int // of 1 to that many
	uneven        int // intervals in a row, this one too
	owed          float64
	moved         map[Key]time.Duration // when it was planned
	pace          pace
}

// NewPlanner is for one of a number of shards, counted from 1. Each plans its own
// part of what is to be moved.
func NewPlanner(c backend.RebalanceConfig, shard, shards int) *Planner {
	p := &Planner{config: c, shard: shard, shards: shards, moved: make(map[Key]time.Duration)}
	p.even()
	return p
}

// even begins anew. Shards owe different parts of a move, or those of equal parts
// would all move at once.
func (p *Planner) even() {
	p.uneven, p.owed = 0, (float64(p.shard)-0.5)/float64(p.shards)
}

// Configure has other settings hold from the next interval on.
func (p *Planner) Configure(c backend.RebalanceConfig) { p.config = c }

// View is a pool as the leader sees it.
type View struct {
	Now       time.Duration
	Knee      float64 // of the pool's placement
	Backends  []Load
	Panic     bool          // the pool ignores health
	Stale     bool          // what other nodes count is not known, or old
	Requests  uint64        // that this node began for the pool, ever
	Elsewhere float64       // a second, that the other nodes begin for it lately
	Pending   int           // moves that the shard's sessions are too busy for yet
	Report    time.Duration // how often nodes tell what was used, at the rarest

	// Sessions returns the shard's sessions of a backend.
	Sessions func(backend string) []Candidate
}

// Load is what runs on a backend.
type Load struct {
	ID      string
	Streams float64 // of all nodes
	Speed   float64 // beside the others'; more is faster
	Cap     int     // streams that it runs at a time; 0: not known
	Takes   bool    // it is active; others neither give nor take
}

// Candidate is a session that may move.
type Candidate struct {
	Session Key
	Epoch   Epoch
	Busy    bool          // a turn runs, as far as is known
	Idle    time.Duration // since its last turn
	New     bool          // nobody has told of a second turn yet
}

// Reason says what became of an interval. The list is closed.
type Reason string

// Why nothing was moved, and that something was.
const (
	RestOff    Reason = "off"    // rebalancing is switched off
	RestPanic  Reason = "panic"  // too few backends look well for a judgement
	RestStale  Reason = "stale"  // the others' counts are old
	RestSpike  Reason = "spike"  // more requests come than usual: moves would add to it
	RestEven   Reason = "even"   // the backends are alike enough
	RestOnce   Reason = "once"   // uneven, but for one interval only
	RestShare  Reason = "share"  // this shard's part is less than a session yet
	RestNobody Reason = "nobody" // this shard has no session that may move and would help
	MovedSome  Reason = "moved"  // Moves sessions are asked to move
)

// Reasons are all of them.
func Reasons() []Reason {
	return []Reason{RestOff, RestPanic, RestStale, RestSpike, RestEven, RestOnce, RestShare, RestNobody, MovedSome}
}

const (
	patience    = 2   // intervals in a row that must be uneven
	groupLeast  = 64  // backends in a group
	maxPlanned  = 256 // sessions that one interval moves, as one hold
	spikeTimes  = 2   // of the mean pace, where max_rate is auto
	spikeSigmas = 3   // above that, or chance would make spikes of few requests
	leastSpike  = 1   // requests in an interval that are none, after however long a silence
	paceOver    = 5 * time.Minute
	paceLeast   = time.Minute // or a spike soon after the start would be its own mean
)

// Decision explains an interval.
type Decision struct {
	Reason Reason
	CV     float64 // of the step times that the planner saw
	Excess float64 // streams that are on slower backends than they need be: this shard's part
	Moves  int
	Pace   float64 // requests a second that came to the pool in the interval; 0: it is the first
	Limit  float64 // above which they are a spike; 0: there is none
}

func (d Decision) String() string {
	switch d.Reason {
	case RestOff, RestPanic, RestStale:
		return string(d.Reason)
	case RestSpike:
		return fmt.Sprintf("spike: %.1f requests/s, and no move above %.1f", d.Pace, d.Limit)
	case MovedSome:
		return fmt.Sprintf("moved: %d sessions, step time cv %.2f, excess %.1f", d.Moves, d.CV, d.Excess)
	}
	return fmt.Sprintf("%s: step time cv %.2f, excess %.1f", d.Reason, d.CV, d.Excess)
}

// Plan says which sessions move now, and why, or why none does. It is asked once
// every interval.
func (p *Planner) Plan(v View) ([]Target, Decision) {
	var d Decision
	d.Pace, d.Limit = p.measure(v)
	loads, part := p.own(v.Backends)
	d.CV = variation(loads, v.Knee)
	switch {
	case !p.config.Enabled:
		d.Reason = RestOff
	case v.Panic:
		d.Reason = RestPanic
	case v.Stale:
		d.Reason = RestStale
	case d.Limit > 0 && d.Pace > d.Limit:
		d.Reason = RestSpike
	}
	if d.Reason != "" {
		p.even() // what was uneven before it could not see is no reason to move
		return nil, d
	}
	if d.CV <= p.config.Threshold {
		p.even()
		d.Reason = RestEven
		return nil, d
	}
	d.Excess = part * excess(loads, v.Knee)
	if p.uneven++; p.uneven < patience {
		d.Reason = RestOnce
		return nil, d
	}
	return p.move(v, loads, d)
}

// move plans as many moves as are owed by now.
func (p *Planner) move(v View, loads []Load, d Decision) ([]Target, Decision) {
	p.owed += p.config.Share * max(0, d.Excess-float64(v.Pending)) // or long streams would have all move that are in the way
	if p.owed < 1 {
		d.Reason = RestShare
		return nil, d
	}
	moves := p.choose(v, loads, min(int(p.owed), maxPlanned))
	p.owed = min(p.owed-float64(len(moves)), 1) // what nobody could do is not saved up
	if d.Moves = len(moves); d.Moves == 0 {
		d.Reason = RestNobody
		return nil, d
	}
	d.Reason = MovedSome
	return moves, d
}

// own are the backends that this shard looks at, and its part of their excess. A
// large pool is cut into groups, one for a group of shards, so that each sees few;
// the groups are drawn by the order of ids, and so alike in load but for chance.
func (p *Planner) own(all []Load) (loads []Load, part float64) {
	for _, l := range all {
		if l.Takes && l.Speed > 0 {
			loads = append(loads, l)
		}
	}
	slices.SortFunc(loads, func(a, b Load) int { return cmp.Compare(a.ID, b.ID) })
	groups := max(1, min(p.shards, len(loads)/groupLeast))
	mine := p.shard % groups
	shares := 0
	for s := 1; s <= p.shards; s++ {
		if s%groups == mine {
			shares++
		}
	}
	i := -1
	loads = slices.DeleteFunc(loads, func(Load) bool {
		i++
		return i%groups != mine
	})
	return loads, 1 / float64(shares)
}

// choose moves one session at a time from where a step takes longest to where it
// will take the shortest, while that is better for it.
func (p *Planner) choose(v View, loads []Load, n int) (moves []Target) {
	crowds := make(map[string][]Candidate)
	for len(moves) < n {
		from := p.dearest(v, loads, crowds)
		to := cheapest(loads, v.Knee)
		if from == nil || to == nil || from.step(v.Knee, 0) <= to.step(v.Knee, 1) {
			break
		}
		c := crowds[from.ID][0]
		crowds[from.ID] = crowds[from.ID][1:]
		moves = append(moves, Target{c.Session, c.Epoch, to.ID})
		p.moved[c.Session] = v.Now
		from.Streams--
		to.Streams++
	}
	return moves
}

// dearest is the backend with the longest step of those with a session that may go.
// They are asked for their sessions in that order, for to find these is work.
func (p *Planner) dearest(v View, loads []Load, crowds map[string][]Candidate) *Load {
	slices.SortStableFunc(loads, func(a, b Load) int { return cmp.Compare(b.step(v.Knee, 0), a.step(v.Knee, 0)) })
	for i := range loads {
		l := &loads[i]
		if l.Streams < 1 {
			continue
		}
		if _, asked := crowds[l.ID]; !asked {
			crowds[l.ID] = p.movable(v, l.ID)
		}
		if len(crowds[l.ID]) > 0 {
			return l
		}
	}
	return nil
}

// movable are a backend's sessions that were not moved for long enough: the idle
// ones first, and of these the ones that were used last, for to move what nobody
// uses any more moves no load. A client that keeps no cookie is a session with each
// request, of one turn: what is new comes last, and not at all once it is silent.
func (p *Planner) movable(v View, id string) []Candidate {
	for k, at := range p.moved {
		if v.Now-at >= p.config.MinResidence {
			delete(p.moved, k)
		}
	}
	all := slices.DeleteFunc(slices.Clone(v.Sessions(id)), func(c Candidate) bool {
		_, settling := p.moved[c.Session]
		return settling || c.New && c.Idle > 2*v.Report
	})
	slices.SortFunc(all, func(a, b Candidate) int {
		return cmp.Or(behind(a.New, b.New), behind(a.Busy, b.Busy), cmp.Compare(a.Idle, b.Idle), slices.Compare(a.Session[:], b.Session[:]))
	})
	return all
}

// behind has those come last of which something is true.
func behind(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

func cheapest(loads []Load, knee float64) (best *Load) {
	for i := range loads {
		l := &loads[i]
		if l.Cap > 0 && l.Streams+1 > float64(l.Cap) {
			continue
		}
		if best == nil || l.step(knee, 1) < best.step(knee, 1) {
			best = l
		}
	}
	return best
}

// step is the time of a step with some streams more.
func (l *Load) step(knee, more float64) float64 { return (knee + l.Streams + more) / l.Speed }

// variation is the standard deviation of step times over their mean.
func variation(loads []Load, knee float64) float64 {
	var sum, squares float64
	for i := range loads {
		s := loads[i].step(knee, 0)
		sum += s
		squares += s * s
	}
	if len(loads) == 0 || sum == 0 {
		return 0
	}
	n := float64(len(loads))
	mean := sum / n
	return math.Sqrt(max(0, squares/n-mean*mean)) / mean
}

// excess is how many streams are where they would not be if every step took as
// long as any other, which the fastest backends alone can have if they are few.
func excess(loads []Load, knee float64) (over float64) {
	fastest := slices.SortedFunc(slices.Values(loads), func(a, b Load) int { return cmp.Compare(b.Speed, a.Speed) })
	streams, speeds, level := 0.0, 0.0, 0.0
	for _, l := range loads {
		streams += l.Streams
	}
	for i, l := range fastest {
		speeds += l.Speed
		level = (streams + knee*float64(i+1)) / speeds
		if i+1 < len(fastest) && level <= knee/fastest[i+1].Speed {
			break // the next one's step is longer when idle
		}
	}
	for _, l := range loads {
		over += max(0, l.Streams-max(0, level*l.Speed-knee))
	}
	return over
}

// pace is how many requests come to the pool: this node's by a counter that is read
// now and then, the others' by what they say.
type pace struct {
	at    time.Duration
	count uint64
	seen  float64 // seconds since the first reading
	mean  float64 // per second
	begun bool
}

// measure takes the interval that ends now into the mean. It returns how many requests
// came a second, and above how many they are a spike; 0 where that cannot be said.
// What comes by nodes that are not heard is neither a lull nor, once they are, a spike.
func (p *Planner) measure(v View) (pace, limit float64) {
	c := &p.pace
	dt, count := (v.Now - c.at).Seconds(), float64(v.Requests-c.count)
	fresh := !c.begun || v.Requests < c.count || dt <= 0 || v.Stale
	c.at, c.count, c.begun = v.Now, v.Requests, true
	if fresh {
		return 0, 0
	}
	pace, usual := count/dt+v.Elsewhere, float64(p.config.MaxRate)
	if p.config.MaxRate < 0 {
		usual = spikeTimes * c.mean
	}
	if p.config.MaxRate > 0 || p.config.MaxRate < 0 && c.seen > 0 {
		limit = max(usual+spikeSigmas*math.Sqrt(usual/dt), leastSpike/dt)
	}
	c.fold(pace, dt)
	return pace, limit
}

// fold takes a pace that lasted for so many seconds into the mean.
func (c *pace) fold(pace, dt float64) {
	weight := dt / max(paceLeast.Seconds(), min(c.seen+dt, paceOver.Seconds()))
	if c.seen == 0 {
		weight = 1
	}
	c.seen += dt
	c.mean += (pace - c.mean) * min(1, weight)
}
