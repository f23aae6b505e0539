package health

import (
	"slices"
	"sync"
	"time"

	"github.com/starling-lb/starling/proxy/backend"
)

const (
	paceWindow = 128                   // good checks of a backend that count
	paceLeast  = 10                    // before that, one's checks tell nothing
	paceEvery  = 5 * time.Second       // between two looks at what is usual
	paceFloor  = 50 * time.Millisecond // what takes no longer is never slow: a scheduler's hiccup is no illness
)

// pace is how long the good checks of a pool take. What is usual is the p99 of a
// typical backend, the middle one of all: a slow backend does not make itself
// usual, nor do a few.
type pace struct {
	mu    sync.Mutex
	took  map[*backend.Backend]*ring
	usual time.Duration // 0: not known yet
	next  time.Time     // when to look again
}

// ring holds the last checks of one backend.
type ring struct {
	took [paceWindow]time.Duration
	n    int // checks so far
}

// begin has a backend's checks counted until it is dropped.
func (p *pace) begin(b *backend.Backend) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.took == nil {
		p.took = map[*backend.Backend]*ring{}
	}
	p.took[b] = &ring{}
}

// add counts a check. One that was under way when its backend was dropped counts
// nowhere.
func (p *pace) add(b *backend.Backend, took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r := p.took[b]; r != nil {
		r.took[r.n%paceWindow] = took
		r.n++
	}
}

func (p *pace) drop(b *backend.Backend) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.took, b)
}

// limit is what a check may take and not be slow; 0: as long as it likes.
func (p *pace) limit(threshold time.Duration) time.Duration {
	if threshold != backend.SlowAuto {
		return threshold
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.usual == 0 {
		return 0
	}
	return max(paceFloor, 2*p.usual)
}

// settle finds out now and then what is usual.
func (p *pace) settle(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now.Before(p.next) {
		return
	}
	p.next = now.Add(paceEvery)
	var each []time.Duration
	for _, r := range p.took {
		if r.n >= paceLeast {
			each = append(each, r.p99())
		}
	}
	slices.Sort(each)
	if len(each) > 0 {
		p.usual = each[(len(each)-1)/2] // of two, the faster
	}
}

func (r *ring) p99() time.Duration {
	sorted := slices.Clone(r.took[:min(r.n, paceWindow)])
	slices.Sort(sorted)
	return sorted[(len(sorted)*99-1)/100]
}
