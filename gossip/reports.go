package gossip

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/starling-lb/starling/proxy/backend"
)

const (
	maxEntries   = 1 << 14          // backends that one node may speak of
	maxHeld      = 1 << 17          // entries that a node keeps of all others: some 50 MB
	reportExpiry = 25 * time.Second // after a node's last chunk: it sends all it has every 10 s
)

// reports is what the others said last, per node and backend. Merging is a
// join: chunks may come in any order, twice, or not at all, and the same chunks
// give the same state. Nothing of it ever gets into this node's own counts.
type reports struct {
	mu      sync.Mutex
	origins map[uint64]*origin // by the node's mark
	held    int                // entries of all of them
	dirty   map[uint64]bool    // backends of which something was said since the sums were made

	lastAsks time.Time
	asks     int // since
}

// origin is one node's report.
type origin struct {
	boot    uint64
	floor   [buckets]uint64 // what is older than this is gone, by bucket
	entries map[uint64]held // by the backend's mark
	latest  time.Time       // when its last chunk came; zero: none has
	seq     uint64          // of the latest
	tally   tally
	wish    wish
}

// held is an entry and the version of the chunk that it came in.
type held struct {
	entry
	seq uint64
	at  time.Time // when it came; its ages count back from here
}

func newReports() *reports {
	return &reports{origins: map[uint64]*origin{}, dirty: map[uint64]bool{}}
}

// of is a node's report in a start of its; or, where a later one is known, in
// that. The lock is held.
func (r *reports) of(mark, boot uint64) *origin {
	o := r.origins[mark]
	if o == nil || boot > o.boot {
		r.drop(mark)
		o = &origin{boot: boot, entries: map[uint64]held{}}
		r.origins[mark] = o
	}
	return o
}

// drop forgets a node's report; the lock is held.
func (r *reports) drop(mark uint64) {
	o := r.origins[mark]
	if o == nil {
		return
	}
	for backend := range o.entries {
		r.dirty[backend] = true
	}
	r.held -= len(o.entries)
	delete(r.origins, mark)
}

// merge takes a chunk of a live member's present start in. It tells whether
// anything is new.
func (r *reports) merge(c chunk) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := r.of(c.origin, c.boot)
	if c.boot < o.boot {
		return false
	}
	if c.seq >= o.seq {
		o.seq, o.latest = c.seq, c.received
	}
	news := false
	for _, e := range c.entries {
		known, ok := o.entries[e.mark]
		if c.seq < o.floor[bucketOf(e.mark)] || ok && c.seq <= known.seq || !ok && (len(o.entries) >= maxEntries || r.held >= maxHeld) {
			continue
		}
		if !ok {
			r.held++
		}
		o.entries[e.mark] = held{e, c.seq, c.received}
		r.dirty[e.mark], news = true, true
	}
	if c.full && r.raise(o, c) {
		news = true
	}
	if c.forAll() {
		o.tally.heard(c.number())
	}
	return news
}

// raise takes out what a full chunk leaves out. It tells whether anything was.
func (r *reports) raise(o *origin, c chunk) (gone bool) {
	for b := int(c.first); b <= int(c.last); b++ {
		o.floor[b] = max(o.floor[b], c.seq)
	}
	for mark, h := range o.entries {
		if h.seq < o.floor[bucketOf(mark)] {
			delete(o.entries, mark)
			r.held--
			r.dirty[mark], gone = true, true
		}
	}
	o.tally.covered(slices.Min(o.floor[:]) >> lookBits)
	return gone
}

// keep forgets all nodes but these, which are the live ones and their starts;
// the lock is held.
func (r *reports) keep(p *peers) {
	for mark, o := range r.origins {
		if i, ok := p.byMark[mark]; !ok || p.list[i].boot != o.boot {
			r.drop(mark)
		}
	}
}

// ages is how old each live node's report is; none where it has sent nothing
// yet.
func (r *reports) ages(p *peers, now time.Time) map[string]time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[string]time.Duration{}
	for _, n := range p.list {
		if o := r.origins[n.mark]; o != nil && !o.latest.IsZero() {
			out[n.id] = now.Sub(o.latest)
		}
	}
	return out
}

// Testimony is what another node's report says of one backend's health, in this
// node's time.
type Testimony struct {
	Node  string         // its id
	Looks []backend.Look // newest first
	Heard time.Time      // when a byte came from the backend last; zero: not lately
}

// sums is what the others say of each backend of ours. It never changes.
type sums struct {
	peers     *peers
	ids       *map[uint64]string
	whole     time.Time // when all of it was made
	stale     bool
	elsewhere map[string]backend.Elsewhere
	paces     map[string]float64 // of all others together, by pool
	said      map[string][]Testimony
	doubts    map[string]bool // those at which somebody's last look failed
	looked    []string        // those of which something else is said than before
}

// voice is one live node whose report is fresh.
type voice struct {
	id string
	*origin
}

// sum adds up, for the backends with these marks, what live nodes say whose
// reports are fresh. What nothing new was said of stays as it was before, as
// long as nodes and backends are the same, and for a second at most.
func (r *reports) sum(before *sums, p *peers, ids *map[uint64]string, now time.Time) *sums {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.keep(p)
	voices := r.voices(p, now)
	s := &sums{peers: p, ids: ids, stale: 2*len(voices) < len(p.list), whole: before.whole}
	dirty := r.dirty
	r.dirty = map[uint64]bool{}
	if p == before.peers && ids == before.ids && s.stale == before.stale && now.Sub(s.whole) < hearIdle {
		s.elsewhere, s.said, s.doubts = maps.Clone(before.elsewhere), maps.Clone(before.said), maps.Clone(before.doubts)
		s.paces = maps.Clone(before.paces)
		for mark := range dirty {
			if id, ours := (*ids)[mark]; ours {
				s.add(before, voices, mark, id)
			}
		}
		return s
	}
	s.whole = now
	s.elsewhere, s.said, s.doubts = make(map[string]backend.Elsewhere, len(*ids)), map[string][]Testimony{}, map[string]bool{}
	s.paces = make(map[string]float64)
	for mark, id := range *ids {
		s.add(before, voices, mark, id)
	}
	return s
}

func (r *reports) voices(p *peers, now time.Time) (list []voice) {
	for _, n := range p.list {
		if o := r.origins[n.mark]; o != nil && o.boot == n.boot && now.Sub(o.latest) <= reportExpiry {
			list = append(list, voice{n.id, o})
		}
	}
	return list
}

// add makes one backend's sums anew, or a pool's.
func (s *sums) add(before *sums, voices []voice, mark uint64, id string) {
	if pool, ok := strings.CutPrefix(id, poolPrefix); ok {
		s.paces[pool] = paceOf(voices, mark)
		return
	}
	e := backend.Elsewhere{Nodes: len(s.peers.list), Stale: s.stale}
	var speedAt time.Time
	var said []Testimony
	doubt := false
	for _, v := range voices {
		h, ok := v.entries[mark]
		if !ok {
			continue
		}
		e.InFlight += h.inFlight
		e.Running += h.running
		e.Phantoms += float64(h.phantoms) / 4
		if h.wanting {
			e.Wanting++
		}
		if h.speed != 0 && h.at.After(speedAt) {
			e.Speed, speedAt = speedOf(h.speed), h.at
		}
		if t := h.testimony(v.id); len(t.Looks) > 0 || !t.Heard.IsZero() {
			said = append(said, t)
			doubt = doubt || t.doubts()
		}
	}
	s.elsewhere[id], s.doubts[id] = e, doubt
	if !slices.EqualFunc(said, before.said[id], Testimony.same) {
		s.looked = append(s.looked, id)
	}
	delete(s.said, id)
	if len(said) > 0 {
		s.said[id] = said
	}
}

func (h held) testimony(node string) Testimony {
	t := Testimony{Node: node}
	if h.heard >= 0 {
		t.Heard = h.at.Add(-time.Duration(h.heard) * ageUnit)
	}
	for _, l := range h.looks {
		t.Looks = append(t.Looks, backend.Look{
			At: h.at.Add(-time.Duration(l.ago) * ageUnit), Took: time.Duration(l.took) * ageUnit, Finding: findings()[l.finding], TimedOut: l.late,
		})
	}
	return t
}

// doubts tells whether the node's last look at the backend failed.
func (t Testimony) doubts() bool { return len(t.Looks) > 0 && t.Looks[0].Finding == backend.LookFail }

// gist changes with what the testimony says, and hardly with the time that it
// took to come: ages are rounded on the way.
func (t Testimony) gist() (g gist) {
	g.heard = t.Heard.Round(time.Second).Unix()
	if len(t.Looks) > 0 {
		g.looks, g.finding, g.at = len(t.Looks), t.Looks[0].Finding, t.Looks[0].At.Round(100*time.Millisecond).UnixMilli()
	}
	return g
}

type gist struct {
	heard, at int64
	looks     int
	finding   backend.Finding
}

// same tells whether two testimonies say as much.
func (t Testimony) same(other Testimony) bool {
	return t.Node == other.Node && t.gist() == other.gist()
}
