package sim

// alter changes a server.
func (r *run) alter(c change) {
	s := &r.servers[c.server]
	s.advance(c.at)
	absent := s.absent
	c.do(s)
	s.share()
	r.events.set(others+c.server, s.due())
	if absent && !s.absent {
		r.placer.joined(c.at, c.server)
	}
}

// begin is what the fault does to a server as it comes.
func (k Kind) begin() func(*server) {
	switch k {
	case Gray:
		return func(s *server) { s.factor = 0.1 }
	case Dead:
		return func(s *server) { s.refuses = true }
	case Frozen:
		return func(s *server) { s.factor = 0 }
	case Join:
		return func(s *server) { s.absent, s.factor = false, 0.5 }
	}
	panic("BUG: a fault of no known kind")
}

// mend is what the end of any fault does to a server.
func mend(s *server) { s.factor, s.refuses = 1, false }
