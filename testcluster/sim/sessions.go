package sim

import (
	"cmp"
	"container/heap"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/starling-lb/starling/proxy/backend"
	"github.com/starling-lb/starling/shards"
)

// Sessions make the requests turns of conversations: each turn comes a while after
// the answer to the one before, goes where its session is bound, and finds its
// context there. Where that is not, all that was said so far is read again.
type Sessions struct {
	Turns  int                      // of each session
	Think  time.Duration            // between an answer and the next turn, on average
	Skew   float64                  // sigma of the lognormal spread of that average over sessions; 0: all are alike
	Loose  bool                     // sessions are not bound: every turn is placed anew
	Shards int                      // among whose leaders they are spread; 0: 16
	Moves  *backend.RebalanceConfig // how the leaders' planners move them; nil: they do not
	Heavy  bool                     // a turn that would be far faster elsewhere moves its session, as by rebalance.enabled
}

// session is one conversation.
type session struct {
	key     shards.Key
	shard   int   // from 0
	turns   []Job // to come
	think   float64
	context int // tokens
	cached  int // server that has the context; -1: none
	bound   int // server; -1: none
	want    int // server to which it moves once no turn runs; -1: none
	epoch   shards.Epoch
	busy    bool
	over    bool
	since   float64 // when its last turn ended
	moved   float64 // when it was moved last; 0: never
	left    bool    // its turn was too heavy for its home
}

// lost is how much of the context a server has to read again.
func (s *session) lost(server int) int {
	if server == s.cached {
		return 0
	}
	return s.context
}

// talks is all sessions of a run and what moves them.
type talks struct {
	all      []*session // in the order of their starts
	due      dues
	dice     *rand.Rand
	by       [][]*session // those that have begun, by shard
	planners []*shards.Planner
	next     []float64 // by shard
}

func (t *talks) more() bool { return len(t.due) > 0 }

// due is a turn to come.
type due struct {
	at float64
	s  *session
}

type dues []due

func (d dues) Len() int           { return len(d) }
func (d dues) Less(i, j int) bool { return d[i].at < d[j].at }
func (d dues) Swap(i, j int)      { d[i], d[j] = d[j], d[i] }
func (d *dues) Push(x any)        { *d = append(*d, x.(due)) }
func (d *dues) Pop() any {
	last := (*d)[len(*d)-1]
	*d = (*d)[:len(*d)-1]
	return last
}

// The sources of events behind all others: the sessions' next turns, and the
// planners.
func (r *run) thinks() int { return others + len(r.servers) + r.placer.turns() }
func (r *run) plans() int  { return r.thinks() + 1 }

// converse makes turns of the cell's jobs: those that are left arrive by themselves,
// and are the first of each session.
func (r *run) converse() {
	c := r.cell.Sessions
	t := &talks{dice: rand.New(rand.NewPCG(r.cell.Seed, 4))}
	span := r.jobs[len(r.jobs)-1].At
	n := len(r.jobs) / c.Turns
	first := make([]Job, n)
	for i := range n {
		s := &session{turns: r.jobs[i*c.Turns : (i+1)*c.Turns], cached: -1, bound: -1, want: -1, shard: i % c.shards()}
		binary.BigEndian.PutUint64(s.key[:], uint64(i))
		s.think = c.Think.Seconds() * math.Exp(c.Skew*t.dice.NormFloat64()-c.Skew*c.Skew/2)
		first[i], s.turns = s.turns[0], s.turns[1:]
		t.all = append(t.all, s)
	}
	scatter(first, span, t.dice)
	r.jobs, r.talks = first, t
}

func (c *Sessions) shards() int { return cmp.Or(c.Shards, 16) }

// begin has the planners start, one after the other.
func (r *run) begin() {
	c, t := r.cell.Sessions, r.talks
	if len(r.cell.Faults) == 0 {
		r.to = r.jobs[len(r.jobs)-1].At // what comes after the last start only drains
	}
	t.by = make([][]*session, c.shards())
	if c.Moves == nil || r.cell.Rule.Policy == Oracle {
		return
	}
	for i := range c.shards() {
		t.planners = append(t.planners, shards.NewPlanner(*c.Moves, i+1, c.shards()))
		t.next = append(t.next, c.Moves.Interval.Seconds()*(float64(i)+0.5)/float64(c.shards()))
	}
	r.events.set(r.plans(), t.next[0])
}

// speak is the next turn of a session.
func (r *run) speak(now float64) {
	t := r.talks
	s := heap.Pop(&t.due).(due).s
	r.nextTurn()
	q := r.fresh()
	q.job, q.session = s.turns[0], s
	q.job.At = now
	s.turns = s.turns[1:]
	s.busy = true
	r.come(q, now)
}

func (r *run) nextTurn() {
	at := math.Inf(1)
	if t := r.talks; len(t.due) > 0 {
		at = t.due[0].at
	}
	r.events.set(r.thinks(), at)
}

// answered is the end of a turn.
func (r *run) answered(q *request, now float64) {
	s, t := q.session, r.talks
	if s.context == 0 {
		t.by[s.shard] = append(t.by[s.shard], s)
	}
	s.context += q.job.Prompt + q.job.Output
	s.cached, s.busy, s.since = q.server, false, now
	if s.bound < 0 && !r.cell.Sessions.Loose {
		s.bound = q.server
		s.epoch++
	}
	if s.want >= 0 {
		r.moved(s, s.want, now)
	}
	if len(s.turns) == 0 {
		s.over = true
		return
	}
	heap.Push(&t.due, due{now + s.think*t.dice.ExpFloat64(), s})
	r.nextTurn()
}

func (r *run) moved(s *session, to int, now float64) {
	s.bound, s.want = to, -1
	s.epoch++
	r.count(s, now)
}

func (r *run) count(s *session, now float64) {
	s.moved = now
	if now >= r.from && now < r.to {
		r.tally.moves++
	}
}

// lighten has a session leave a home that is far slower than others would be.
func (f *fleet) lighten(p *proxy, s *session, now float64) {
	c := f.cell.Sessions
	if !c.Heavy || s.bound < 0 || s.moved > 0 && now-s.moved < stay || !p.pool.Heavy(p.backends[s.bound], moment(now)) {
		return
	}
	s.bound, s.want, s.left = -1, -1, true
}

// stay is the default of min_residence, in seconds.
const stay = 300

// plan has the planner plan whose interval ends now. What is busy moves later.
func (r *run) plan(now float64) {
	t := r.talks
	shard := slices.Index(t.next, slices.Min(t.next))
	t.next[shard] = now + r.cell.Sessions.Moves.Interval.Seconds()
	r.events.set(r.plans(), slices.Min(t.next))
	t.by[shard] = slices.DeleteFunc(t.by[shard], func(s *session) bool { return s.over })
	f := r.placer.(*fleet)
	moves, _ := t.planners[shard].Plan(f.view(shard%len(f.proxies), t.by[shard], now))
	for _, m := range moves {
		i := slices.IndexFunc(t.by[shard], func(s *session) bool { return s.key == m.Session })
		s, to := t.by[shard][i], slices.Index(f.ids, m.Backend)
		if s.busy {
			s.want = to
		} else {
			r.moved(s, to, now)
		}
	}
}

// view is what a proxy sees of the servers and of its shard's sessions.
func (f *fleet) view(proxy int, sessions []*session, now float64) shards.View {
	p := &f.proxies[proxy]
	v := shards.View{Now: seconds(now), Knee: p.pool.Knee(), Panic: p.pool.Panic(), Requests: p.begun, Elsewhere: p.pool.PaceElsewhere()}
	for j, b := range p.backends {
		if b == nil {
			continue
		}
		l := shards.Load{ID: b.ID, Streams: b.Crowd(moment(now)), Speed: b.Speed(), Takes: b.Standing().State == backend.Active}
		if f.cell.Rule.Caps != Untold {
			l.Cap = f.servers[j].Slots
		}
		v.Backends = append(v.Backends, l)
	}
	for _, s := range sessions {
		if s.want >= 0 {
			v.Pending++
		}
	}
	v.Sessions = func(id string) (all []shards.Candidate) {
		at := slices.Index(f.ids, id)
		for _, s := range sessions {
			if s.bound == at && s.want < 0 && !s.over {
				all = append(all, shards.Candidate{Session: s.key, Epoch: s.epoch, Busy: s.busy, Idle: seconds(now - s.since)})
			}
		}
		return all
	}
	return v
}

// ask is what a request wants of its proxy's pool.
func (p *proxy) ask(r *request) backend.Ask {
	a := backend.Ask{Tried: r.claim.tried, Hash: r.job.Key}
	if r.session != nil && r.session.bound >= 0 && len(a.Tried) == 0 {
		a.Only, a.Bound = p.backends[r.session.bound], true
	}
	return a
}

// prefill is how long the server reads alone until the first token, in seconds.
func (r *request) prefill() float64 { return r.job.prefill() + float64(r.lost)/prefillRate }

// work is how long the request takes alone there.
func (r *request) work() float64 { return r.job.Work() + float64(r.lost)/prefillRate }
