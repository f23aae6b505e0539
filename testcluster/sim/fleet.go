package sim

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/starling-lb/starling/proxy/backend"
)

// claim is what a request holds of its proxy's pool.
type claim struct {
	lease backend.Lease
	tried []*backend.Backend
	place int // in the proxy's list of running requests
	told  int // tokens that the pool was told of
}

// fleet is the proxies, a real pool each, and the reports between them.
//
// Each takes a look at the others' counts every Age and hears it half an Age
// later: what it knows of them is from half to one and a half Age old. Proxies
// look one after the other, never all at once.
type fleet struct {
	cell    *Cell
	servers []server
	proxies []proxy
	heard   []hearsay // by server
	said    map[string]backend.Elsewhere
	ids     []string // by server
	tokens  int      // that the pools were told of
	pace    float64  // requests a second, as all proxies say
}

// proxy is one of them.
type proxy struct {
	pool     *backend.Pool
	backends []*backend.Backend  // by server; nil: not joined
	live     []*request          // that are at a server
	running  []int               // by server: those whose first token came
	report   []backend.Elsewhere // of the others, on its way
	phantoms []float64           // its own, by server, as it reported them last
	onWay    bool
	asks     float64 // when it asks the engines next
	begun    uint64  // requests that it placed
	pace     float64 // of these a second, as it said last
	others   float64 // that the others do, as on its way with the report
}

// hearsay is what all proxies together say of a server.
type hearsay struct {
	inFlight, running int
	phantoms          float64
	speed             [2]reading // the two freshest, of different proxies
}

// reading is a proxy's reading of a server's speed.
type reading struct {
	proxy int
	speed float64 // 0: none
}

func newFleet(c *Cell, servers []server) *fleet {
	f := &fleet{
		cell: c, servers: servers, proxies: make([]proxy, c.Proxies),
		heard: make([]hearsay, len(servers)), said: map[string]backend.Elsewhere{},
	}
	for i := range servers {
		f.ids = append(f.ids, fmt.Sprintf("b%d", i+1))
	}
	for i := range f.proxies {
		p := &f.proxies[i]
		p.pool = f.newPool(i)
		p.report, p.phantoms, p.running = make([]backend.Elsewhere, len(servers)), make([]float64, len(servers)), make([]int, len(servers))
		p.find(f.ids)
	}
	return f
}

// tokenBytes is how long an event of one token is on the wire, about.
const tokenBytes = 200

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// moment is the product's form of a time.
func moment(now float64) time.Time {
	return time.Unix(1_700_000_000, int64(seconds(now)))
}

// find puts the pool's backends in the order of the servers.
func (p *proxy) find(ids []string) {
	byID := map[string]*backend.Backend{}
	for _, b := range p.pool.Backends() {
		byID[b.ID] = b
	}
	p.backends = p.backends[:0]
	for _, id := range ids {
		p.backends = append(p.backends, byID[id])
	}
}

func (f *fleet) pick(now float64, r *request) (server int, a answer) {
	p := &f.proxies[r.job.Proxy]
	if r.session != nil {
		f.lighten(p, r.session, now)
	}
	l, err := p.pool.Pick(moment(now), p.ask(r))
	if r.session != nil && errors.Is(err, backend.ErrNone) && r.session.bound >= 0 {
		r.session.bound = -1 // it cannot be served where it was
		l, err = p.pool.Pick(moment(now), p.ask(r))
	}
	switch {
	case errors.Is(err, backend.ErrFull):
		return 0, full
	case err != nil:
		return 0, none
	}
	server = l.Backend().Beside.(int)
	f.heard[server].inFlight++
	p.begun++
	r.claim.lease, r.claim.place = l, len(p.live)
	p.live = append(p.live, r)
	return server, placed
}

func (f *fleet) failed(now float64, r *request) {
	p, b := &f.proxies[r.job.Proxy], r.claim.lease.Backend()
	p.pool.Failed(&r.claim.lease, moment(now), backend.FailedConnect, "connection refused")
	f.haunt(p, r.server, now)
	f.settled(now, r)
	r.claim.tried = append(r.claim.tried, b)
}

func (f *fleet) began(now float64, r *request) {
	f.heard[r.server].running++
	p, l := &f.proxies[r.job.Proxy], &r.claim.lease
	p.running[r.server]++
	p.pool.Succeeded(l, moment(now), seconds(now-r.sent))
	l.Answered(moment(now))
	if r.job.Output > 1 {
		l.Began(moment(now))
	}
	r.claim.told = 1
}

func (f *fleet) settled(now float64, r *request) {
	p := &f.proxies[r.job.Proxy]
	h := &f.heard[r.server]
	h.inFlight--
	if r.answering {
		h.running--
		p.running[r.server]--
		f.progress(now, r)
		p.pool.Finished(r.claim.lease.Backend(), seconds(now-r.sent))
	}
	last := len(p.live) - 1
	p.live[r.claim.place] = p.live[last]
	p.live[r.claim.place].claim.place = r.claim.place
	p.live = p.live[:last]
	r.claim.lease.Release(moment(now))
}

// progress tells the pool of the tokens that a stream got since it was told last.
func (f *fleet) progress(now float64, r *request) {
	s := &f.servers[r.server]
	made := min(int((s.workAt(now)-r.begun-r.prefill())*decodeRate+1e-6), r.job.Output)
	if n := made - r.claim.told; n > 0 {
		r.claim.lease.Progress(n, n*tokenBytes)
		r.claim.told = made
		f.tokens += n
	}
}

func (f *fleet) joined(now float64, _ int) {
	for i := range f.proxies {
		p := &f.proxies[i]
		if err := p.pool.Update(f.configs(), f.rules(), moment(now)); err != nil {
			panic("BUG: " + err.Error())
		}
		p.find(f.ids)
	}
}

func (f *fleet) turns() int { return len(f.proxies) }

func (f *fleet) turn(i int, now float64) (next float64, who int) {
	p, age := &f.proxies[i], f.cell.age()
	switch {
	case now == 0:
		return age * (float64(i) + 0.5) / float64(len(f.proxies)), -1
	case p.onWay:
		p.onWay = false
		f.hear(p)
		return now + age/2, i
	}
	p.onWay = true
	f.look(i, now)
	return now + age/2, -1
}

// look samples the pool, gives the others its word, and takes theirs, which is
// what its next report says.
func (f *fleet) look(i int, now float64) {
	p := &f.proxies[i]
	for _, r := range p.live {
		if r.answering {
			f.progress(now, r)
		}
	}
	p.pool.Sample(moment(now))
	f.pace += p.pool.Pace() - p.pace
	p.pace = p.pool.Pace()
	p.others = f.pace - p.pace
	asks := f.cell.Rule.Caps == ByEngine && now >= p.asks
	if asks {
		p.asks = now + 1
	}
	for j, b := range p.backends {
		if b == nil {
			continue
		}
		h := &f.heard[j]
		f.haunt(p, j, now)
		if asks {
			s := &f.servers[j]
			b.SetEngine(len(s.marks), len(s.queue), s.Slots, moment(now))
		}
		p.report[j] = backend.Elsewhere{
			Nodes:    len(f.proxies) - 1,
			InFlight: h.inFlight - int(b.InFlight()),
			Running:  h.running - p.running[j],
			Phantoms: h.phantoms - p.phantoms[j],
			Speed:    h.besides(i),
		}
		if v := b.Reading(); v > 0 {
			h.say(reading{i, v})
		}
	}
}

// haunt brings up to date what a proxy reports of its failures at a server.
func (f *fleet) haunt(p *proxy, server int, now float64) {
	n := p.backends[server].Phantoms(moment(now))
	f.heard[server].phantoms += n - p.phantoms[server]
	p.phantoms[server] = n
}

// besides is the freshest reading that is not the proxy's own.
func (h *hearsay) besides(proxy int) float64 {
	if h.speed[0].proxy == proxy {
		return h.speed[1].speed
	}
	return h.speed[0].speed
}

// say notes a proxy's reading.
func (h *hearsay) say(r reading) {
	if h.speed[0].proxy != r.proxy {
		h.speed[1] = h.speed[0]
	}
	h.speed[0] = r
}

// hear publishes what is known of the others.
func (f *fleet) hear(p *proxy) {
	if len(f.proxies) == 1 {
		return // there are none
	}
	for j, id := range f.ids {
		f.said[id] = p.report[j]
	}
	p.pool.Hear(f.said)
	p.pool.HearPace(p.others)
}

func (f *fleet) newPool(i int) *backend.Pool {
	byID := map[string]int{}
	for j, id := range f.ids {
		byID[id] = j
	}
	hooks := backend.Hooks{Joined: func(b *backend.Backend) any { return byID[b.ID] }}
	p, err := backend.NewPool("sim", f.configs(), f.rules(), hooks, moment(0))
	if err != nil {
		panic("BUG: " + err.Error())
	}
	p.Random = rand.New(rand.NewPCG(f.cell.Seed, uint64(i)+100)).Uint64
	return p
}

// configs are of the servers that are there.
func (f *fleet) configs() (configs []backend.Config) {
	for i := range f.servers {
		s := &f.servers[i]
		if s.absent {
			continue
		}
		c := backend.DefaultConfig()
		c.ID, c.URL = f.ids[i], "http://"+f.ids[i]
		if f.cell.Rule.Weights {
			c.Weight = int(math.Round(4 * s.Speed))
		}
		if f.cell.Rule.Caps == Configured {
			c.MaxStreams = s.Slots
		}
		configs = append(configs, c)
	}
	return configs
}

func (f *fleet) rules() backend.Rules {
	r := f.cell.Rule
	return backend.Rules{
		Outlier:    backend.DefaultOutlier(),
		Placement:  backend.Placement{Policy: r.Policy, Knee: r.Knee, Draws: r.Draws, BoundedLoad: 125, ReportAge: seconds(f.cell.age())},
		MaxWaiting: maxWaiting, MaxWait: maxWait * time.Second,
	}
}
