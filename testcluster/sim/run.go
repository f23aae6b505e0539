package sim

import (
	"cmp"
	"math"
	"slices"
)

// request is one job on its way.
type request struct {
	job       Job
	server    int
	tries     int
	measured  bool
	answering bool    // its first token is made
	begun     float64 // the server's work when it became active
	mark      float64 // and when its next mark is: its first token, then its last
	place     int     // among the server's marks
	sent      float64 // when it came to its server
	first     float64 // when its first token was made
	claim     claim
	session   *session // nil: it stands alone
	lost      int      // tokens of the session's context that its server has to read again
}

// placer decides where requests go, and is told what becomes of them.
type placer interface {
	// pick chooses a server for r and counts it there.
	pick(now float64, r *request) (server int, answer answer)
	// failed says that the server refused r, settled that r's claim is over,
	// began that its first token is made.
	failed(now float64, r *request)
	settled(now float64, r *request)
	began(now float64, r *request)
	// turns is how many sources of events the placer has; turn is one's event,
	// and tells when its next is and whose waiting requests may have a place now.
	turns() int
	turn(i int, now float64) (next float64, proxy int)
	// joined says that another server is there.
	joined(now float64, server int)
}

// answer is what comes of a pick.
type answer int

const (
	placed answer = iota
	full          // every server that may have it has as many as it may: wait
	none          // there is no server for it
)

// The product's defaults for those who wait for a place, and for attempts.
const (
	maxWaiting  = 32  // at one proxy
	maxWait     = 5.0 // seconds
	maxAttempts = 3
)

// The sources of events: these, then the servers, then the placer's.
const (
	faults = iota
	arrivals
	samples
	others
)

// change is one moment of the faults' schedule.
type change struct {
	at     float64
	server int
	do     func(*server)
}

// run is one cell being played.
type run struct {
	cell    *Cell
	jobs    []Job
	next    int // job
	from    float64
	to      float64
	servers []server
	placer  placer
	waiting [][]*request // by proxy, in order of arrival
	changes []change
	events  *calendar
	spare   []*request
	open    int // requests that are not settled
	tally   tally
	picks   *[]Pick // nil: nobody wants to know
	talks   *talks  // nil: no sessions
}

// Run plays the cell and says how it went.
func Run(c Cell) Figures { return play(c).tally.figures() }

// Detail is a run stream by stream.
type Detail struct {
	Slowdown []float64 // of each request that was measured and answered, the least first
	Picks    []Pick    // every one, in order
}

// Pick is one request's way to an engine, or one attempt of it.
type Pick struct {
	At     float64
	Engine int
}

// Look plays the cell and tells of every stream.
func Look(c Cell) Detail {
	r := newRun(&c)
	r.picks = &[]Pick{}
	r.play()
	r.tally.figures() // sorts
	return Detail{r.tally.slowdown, *r.picks}
}

func play(c Cell) *run {
	r := newRun(&c)
	r.play()
	return r
}

func (r *run) play() {
	for r.open > 0 || r.next < len(r.jobs) || r.talks != nil && r.talks.more() {
		source, now := r.events.first()
		if math.IsInf(now, 1) {
			panic("BUG: requests are open and nothing happens any more")
		}
		r.step(source, now)
	}
}

func newRun(c *Cell) *run {
	r := &run{cell: c, jobs: c.Jobs()}
	if c.Sessions != nil {
		r.converse()
	}
	r.from, r.to = c.window(r.jobs)
	r.servers = make([]server, len(c.Engines))
	for i, e := range c.Engines {
		r.servers[i] = server{Engine: e, factor: 1, absent: c.joins(i)}
		r.servers[i].share()
	}
	r.waiting = make([][]*request, c.Proxies)
	r.tally.attempts = make([]int, len(r.servers))
	if c.Rule.Policy == Oracle {
		r.placer = &oracle{r.servers}
	} else {
		r.placer = newFleet(c, r.servers)
	}
	r.events = newCalendar(r.thinks() + 2)
	r.events.set(arrivals, r.jobs[0].At)
	r.events.set(samples, r.from)
	for i := range r.placer.turns() {
		next, _ := r.placer.turn(i, 0)
		r.events.set(others+len(r.servers)+i, next)
	}
	r.schedule()
	if r.talks != nil {
		r.begin()
	}
	return r
}

func (r *run) step(source int, now float64) {
	server := source - others
	switch {
	case source == arrivals:
		r.arrive(now)
	case source == samples:
		r.sample(now)
	case source == faults:
		r.alter(r.changes[0])
		r.changes = r.changes[1:]
		r.nextChange()
	case server < len(r.servers):
		r.reach(server, now)
	case source == r.thinks():
		r.speak(now)
	case source == r.plans():
		r.plan(now)
	default:
		next, proxy := r.placer.turn(server-len(r.servers), now)
		r.events.set(source, next)
		if proxy >= 0 {
			r.serve(proxy, now)
		}
	}
}

func (r *run) arrive(now float64) {
	q := r.fresh()
	q.job = r.jobs[r.next]
	if r.talks != nil {
		q.session = r.talks.all[r.next]
	}
	r.next++
	if r.next < len(r.jobs) {
		r.events.set(arrivals, r.jobs[r.next].At)
	} else {
		r.events.set(arrivals, math.Inf(1))
	}
	r.come(q, now)
}

// come is a request's arrival at its proxy.
func (r *run) come(q *request, now float64) {
	r.open++
	q.measured = now >= r.from && now < r.to
	if q.measured {
		r.tally.requests++
	}
	queue := &r.waiting[q.job.Proxy]
	switch {
	case len(*queue) == 0 && r.place(q, now):
	case len(*queue) < maxWaiting:
		*queue = append(*queue, q)
	default:
		r.drop(q, &r.tally.rejected)
	}
}

// place tries to get a request to a server. It is false where the request has to
// wait.
func (r *run) place(q *request, now float64) bool {
	for {
		where, answer := r.placer.pick(now, q)
		if answer == full {
			return false
		}
		if answer == none {
			r.drop(q, &r.tally.failed)
			return true
		}
		q.server = where
		q.tries++
		if q.session != nil {
			q.lost = q.session.lost(where)
			if q.session.left {
				q.session.left = false
				r.count(q.session, now)
			}
		}
		if q.measured {
			r.tally.attempts[where]++
		}
		if r.picks != nil {
			*r.picks = append(*r.picks, Pick{now, where})
		}
		s := &r.servers[where]
		if !s.refuses {
			r.enter(q, s, now)
			return true
		}
		r.placer.failed(now, q)
		if q.tries == maxAttempts {
			r.drop(q, &r.tally.failed)
			return true
		}
	}
}

func (r *run) enter(q *request, s *server, now float64) {
	s.advance(now)
	q.sent = now
	if s.add(q) {
		r.events.set(others+q.server, s.due())
		return
	}
	r.placer.settled(now, q)
	r.drop(q, &r.tally.rejected)
}

// serve gives places to those who wait at a proxy, and ends the wait of those
// who have waited for too long.
func (r *run) serve(proxy int, now float64) {
	queue := &r.waiting[proxy]
	for len(*queue) > 0 {
		q := (*queue)[0]
		if now-q.job.At > maxWait {
			r.drop(q, &r.tally.rejected)
		} else if !r.place(q, now) {
			return
		}
		*queue = slices.Delete(*queue, 0, 1)
	}
}

// reach brings a server to its next mark.
func (r *run) reach(i int, now float64) {
	s := &r.servers[i]
	q, first := s.reach(now)
	r.events.set(others+i, s.due())
	if first {
		q.first = now
		r.placer.began(now, q)
		return
	}
	r.placer.settled(now, q)
	if q.measured {
		r.tally.done(q, now)
	}
	proxy := q.job.Proxy
	if q.session != nil {
		r.answered(q, now)
	}
	r.free(q)
	r.serve(proxy, now)
}

// drop ends a request that got no answer.
func (r *run) drop(q *request, count *int) {
	if q.measured {
		*count++
	}
	if q.session != nil {
		q.session.over = true // it gives up
	}
	r.free(q)
}

func (r *run) free(q *request) {
	*q = request{}
	r.spare = append(r.spare, q)
	r.open--
}

func (r *run) fresh() *request {
	n := len(r.spare)
	if n == 0 {
		return &request{}
	}
	q := r.spare[n-1]
	r.spare = r.spare[:n-1]
	return q
}

// sample looks at how even the servers' load is, once a second.
func (r *run) sample(now float64) {
	if r.next == len(r.jobs) || now > r.to {
		r.events.set(samples, math.Inf(1)) // what only drains is not measured
		return
	}
	r.tally.sample(r.servers)
	r.events.set(samples, now+1)
}

// schedule makes the cell's faults a list of changes.
func (r *run) schedule() {
	for _, f := range r.cell.Faults {
		r.changes = append(r.changes, change{f.From, f.Engine, f.Kind.begin()}, change{f.To, f.Engine, mend})
	}
	slices.SortStableFunc(r.changes, func(a, b change) int { return cmp.Compare(a.at, b.at) })
	r.nextChange()
}

func (r *run) nextChange() {
	at := math.Inf(1)
	if len(r.changes) > 0 {
		at = r.changes[0].at
	}
	r.events.set(faults, at)
}
