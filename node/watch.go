package node

import (
	"context"
	"crypto/sha256"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/starling-lb/starling/node/yamlstrict"
)

// reloads is when the configuration is read again, and what came of it the last
// time.
type reloads struct {
	soon chan struct{} // holds a token when somebody asked

	one    sync.Mutex         // held by the reload that runs
	mu     sync.Mutex         // guards what follows
	open   bool               // reloads may begin
	stop   context.CancelFunc // of the one that runs; nil: none does
	hash   string
	failed bool
	at     time.Time // when what is in force was read

	end  context.CancelFunc // of the loop
	done chan struct{}
}

func (r *reloads) begin(hash string) {
	r.soon, r.hash, r.at = make(chan struct{}, 1), hash, time.Now()
}

// enter waits for its turn to reload; false: the node ends. stop is called when it
// does.
func (r *reloads) enter(stop context.CancelFunc) bool {
	r.one.Lock()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.open {
		r.one.Unlock()
		return false
	}
	r.stop = stop
	return true
}

func (r *reloads) leave() {
	r.mu.Lock()
	r.stop = nil
	r.mu.Unlock()
	r.one.Unlock()
}

// note keeps what came of a reload.
func (r *reloads) note(hash string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failed = err != nil; !r.failed {
		r.hash, r.at = hash, time.Now()
	}
}

// success tells whether the last reload was taken.
func (r *reloads) success() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.failed
}

// read is when what is in force was read.
func (r *reloads) read() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.at
}

// Describe implements prometheus.Collector.
func (r *reloads) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range r.descs() {
		ch <- d
	}
}

func (*reloads) descs() [3]*prometheus.Desc {
	return [3]*prometheus.Desc{
		prometheus.NewDesc("starling_config_hash_info", "1; the label is the hash of the configuration in force.", []string{"hash"}, nil),
		prometheus.NewDesc("starling_reload_success", "1: the configuration was read the last time that it was asked for; 0: it was refused, and the one before is in force.", nil, nil),
		prometheus.NewDesc("starling_reload_time_seconds", "When the configuration in force was read, in seconds since 1970.", nil, nil),
	}
}

// Collect implements prometheus.Collector.
func (r *reloads) Collect(ch chan<- prometheus.Metric) {
	r.mu.Lock()
	defer r.mu.Unlock()
	good := 1.0
	if r.failed {
		good = 0
	}
	d := r.descs()
	ch <- prometheus.MustNewConstMetric(d[0], prometheus.GaugeValue, 1, r.hash)
	ch <- prometheus.MustNewConstMetric(d[1], prometheus.GaugeValue, good)
	ch <- prometheus.MustNewConstMetric(d[2], prometheus.GaugeValue, float64(r.at.UnixMilli())/1000)
}

// ReloadSoon has the file read again, by another goroutine, or by the process that is
// the node.
func (n *Node) ReloadSoon() {
	select {
	case n.reloads.soon <- struct{}{}:
	default: // it will be anyway
	}
	if n.HandedOver() {
		n.passReload()
	}
}

func (n *Node) beginReloads() {
	ctx, cancel := context.WithCancel(context.Background())
	r := &n.reloads
	r.mu.Lock()
	r.open, r.end, r.done = true, cancel, make(chan struct{})
	r.mu.Unlock()
	go func() {
		defer close(r.done)
		n.reloadLoop(ctx)
	}()
}

// endReloads returns when no reload runs, or will any more.
func (n *Node) endReloads() {
	r := &n.reloads
	r.mu.Lock()
	r.open = false
	if r.stop != nil {
		r.stop()
	}
	r.mu.Unlock()
	r.end()
	<-r.done
	r.one.Lock() // the admin API's, too
	defer r.one.Unlock()
}

// lookEvery is how often the file is looked at. What it holds is read once it was
// the same at two looks: whoever writes it may be at it.
const lookEvery = time.Second

// reloadLoop reads the file again when somebody asks, or when it has changed.
func (n *Node) reloadLoop(ctx context.Context) {
	if n.opt.File == "" {
		return
	}
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	w := watched{path: n.opt.File}
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.reloads.soon:
			w.known = w.read()
		case <-tick.C:
			if !n.cfg().Reload.Watch || !w.changed() {
				continue
			}
		}
		_, _ = n.Reload(ctx) // it logs what is wrong
	}
}

// watched is a file that others write, in place or by putting another one there.
type watched struct {
	path        string
	known, last [sha256.Size]byte // what was told of, and what was there at the last look; zero: nothing
}

// changed tells whether the file holds something new, the same as at the look
// before. Whether what it held at first is new is not known, so it is.
func (w *watched) changed() bool {
	now := w.read()
	stands := now == w.last
	w.last = now
	if !stands || now == w.known || now == [sha256.Size]byte{} {
		return false
	}
	w.known = now
	return true
}

// read is the sum of what the file holds; zero where it cannot be read, as while it
// is replaced.
func (w *watched) read() (sum [sha256.Size]byte) {
	data, err := yamlstrict.ReadSmall(w.path, maxFile)
	if err != nil {
		return sum
	}
	return sha256.Sum256(data)
}
