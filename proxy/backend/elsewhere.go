package backend

// Elsewhere is what the other nodes' last reports say of one backend, summed
// when it was made. It never changes: who hears something newer makes another.
type Elsewhere struct {
	Nodes    int     // live proxies that it was made of, this one not among them
	InFlight int     // their streams at the backend
	Running  int     // of them, those whose answer has begun
	Phantoms float64 // recent failures that still count as streams
	Speed    float64 // their reading of its speed, the freshest; 0: none has one
	Wanting  int     // of the nodes, those where streams wait that the backend may serve
	Stale    bool    // the reports are too old to add: reckon by own counts and Nodes
}

// Hear publishes what the other nodes say of the pool's backends, by id. A
// backend without an entry is unknown to them. Streams that wait may get places
// that became free elsewhere.
func (p *Pool) Hear(said map[string]Elsewhere) {
	all := 0
	for _, b := range p.Backends() {
		e := said[b.ID]
		b.elsewhere.Store(&e)
		all += e.InFlight
	}
	p.elsewhere.Store(float64(all))
	p.queue.review()
}

// Report is what this node says of one backend to the others.
type Report struct {
	ID       string
	InFlight int
	Running  int
	Phantoms float64
	Speed    float64 // 0: no own reading
	Wanting  bool    // streams wait here that the backend may serve
	Draining bool
	Looks    []Look // the last health checks from here, newest first; at most MaxLooks
	Heard    int64  // when a byte came from it last, in ns since 1970 by this node's clock; 0: never
}
