package backend

import "time"

// Reports is what this node has to say of the pool's backends to the others.
func (p *Pool) Reports(now time.Time) []Report {
	list := p.Backends()
	out := make([]Report, len(list))
	for i, b := range list {
		b.Listen(now)
		out[i] = Report{
			ID: b.ID, InFlight: int(b.Carried()), Running: int(b.flowing.count()) + b.Elder().Running, Phantoms: b.Phantoms(now), Speed: b.Reading(),
			Wanting: p.queue.open.Load() > 0 || b.Waiting() > 0, Draining: b.Standing().State == Draining, Looks: p.Looks(b), Heard: b.Heard(),
		}
	}
	return out
}

// Pool is the pool that the backend is in, or was.
func (b *Backend) Pool() *Pool { return b.pool }
