package gossip

import (
	"slices"
	"sync"
	"time"

	"github.com/starling-lb/starling/proxy/backend"
)

const (
	maxEntries   = 1 << 14          // backends that one node may speak of
	reportExpiry = 25 * time.Second // after a node's last chunk: it sends all it has every 10 s
)

// reports is what the others said last, per node and backend. Merging is a
// join: chunks may come in any order, twice, or not at all, and the same chunks
// give the same state. Nothing of it ever gets into this node's own counts.
type reports struct {
	mu      sync.Mutex
	origins map[uint64]*origin // by the node's mark
}

// origin is one node's report.
type origin struct {
	boot    uint64
	floor   [buckets]uint64 // what is older than this is gone, by bucket
	entries map[uint64]held // by the backend's mark
	latest  time.Time       // when its last chunk came
	seq     uint64          // of the latest
}

// held is an entry and the version of the chunk that it came in.
type held struct {
	entry
	seq uint64
	at  time.Time // when it came; its ages count back from here
}

// merge takes a chunk of a live member's present start in. It tells whether
// anything is new.
func (r *reports) merge(c chunk) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.origins == nil {
		r.origins = map[uint64]*origin{}
	}
	o := r.origins[c.origin]
	if o == nil || c.boot > o.boot {
		o = &origin{boot: c.boot, entries: map[uint64]held{}}
		r.origins[c.origin] = o
	}
	if c.boot < o.boot {
		return false
	}
	return o.merge(c)
}

func (o *origin) merge(c chunk) bool {
	news := false
	if c.seq >= o.seq {
		o.seq, o.latest = c.seq, c.received
	}
	for _, e := range c.entries {
		known, ok := o.entries[e.mark]
		if c.seq < o.floor[bucketOf(e.mark)] || ok && c.seq <= known.seq || !ok && len(o.entries) >= maxEntries {
			continue
		}
		o.entries[e.mark], news = held{e, c.seq, c.received}, true
	}
	if !c.full {
		return news
	}
	for b := int(c.first); b <= int(c.last); b++ {
		o.floor[b] = max(o.floor[b], c.seq)
	}
	for mark, h := range o.entries {
		if h.seq < o.floor[bucketOf(mark)] {
			delete(o.entries, mark)
			news = true
		}
	}
	return news
}

// keep forgets all nodes but these, which are the live ones and their starts.
func (r *reports) keep(p *peers) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for mark, o := range r.origins {
		if i, ok := p.byMark[mark]; !ok || p.list[i].boot != o.boot {
			delete(r.origins, mark)
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
		if o := r.origins[n.mark]; o != nil {
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

// sums is what the others say of each backend of ours.
type sums struct {
	elsewhere map[string]backend.Elsewhere
	said      map[string][]Testimony
}

// sum adds up, for the backends with these marks, what live nodes say whose
// reports are fresh.
func (r *reports) sum(p *peers, ids map[uint64]string, now time.Time) sums {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := sums{elsewhere: make(map[string]backend.Elsewhere, len(ids)), said: map[string][]Testimony{}}
	speedAt := make(map[string]time.Time, len(ids))
	fresh := 0
	for _, n := range p.list {
		o := r.origins[n.mark]
		if o == nil || o.boot != n.boot || now.Sub(o.latest) > reportExpiry {
			continue
		}
		fresh++
		for mark, h := range o.entries {
			id, ours := ids[mark]
			if !ours {
				continue
			}
			e := s.elsewhere[id]
			e.InFlight += h.inFlight
			e.Running += h.running
			e.Phantoms += float64(h.phantoms) / 4
			if h.speed != 0 && h.at.After(speedAt[id]) {
				e.Speed, speedAt[id] = speedOf(h.speed), h.at
			}
			s.elsewhere[id] = e
			if t := h.testimony(n.id); len(t.Looks) > 0 || !t.Heard.IsZero() {
				s.said[id] = append(s.said[id], t)
			}
		}
	}
	for _, id := range ids {
		e := s.elsewhere[id]
		e.Nodes, e.Stale = len(p.list), 2*fresh < len(p.list)
		s.elsewhere[id] = e
	}
	return s
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

// newly lists the backends of which something else is said than before.
func (s sums) newly(before sums) (ids []string) {
	same := func(a, b Testimony) bool { return a.Node == b.Node && a.gist() == b.gist() }
	for id, said := range s.said {
		if !slices.EqualFunc(said, before.said[id], same) {
			ids = append(ids, id)
		}
	}
	for id := range before.said {
		if s.said[id] == nil {
			ids = append(ids, id)
		}
	}
	return ids
}
