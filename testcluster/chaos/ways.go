package chaos

import "github.com/starling-lb/starling/testcluster/fault"

// path is what happens on the way from one node to another.
type path = fault.Path

// bent is what one fault does to one way.
type bent struct {
	from, to string
	path     path
}

// bend has a fault hold on some ways; it is called again for the same fault to
// change that, with none to end it. Where several hold on a way, each does.
func (r *rig) bend(id int, all []bent) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.harm[id] = all; all == nil {
		delete(r.harm, id)
	}
	now := map[[2]string]path{}
	for _, list := range r.harm {
		for _, b := range list {
			pair := [2]string{b.from, b.to}
			old, other := now[pair]
			if now[pair] = b.path; other {
				now[pair] = both(old, b.path)
			}
		}
	}
	for pair := range r.bent {
		if _, still := now[pair]; !still {
			r.ground.ways().Set(pair[0], pair[1], path{})
			delete(r.bent, pair)
		}
	}
	for pair, p := range now {
		r.ground.ways().Set(pair[0], pair[1], p)
		r.bent[pair] = true
	}
}

// number is one that no other fault's ways have.
func (r *rig) number() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.harms++
	return r.harms
}

// both is two paths in one; of which protocol is then no more told apart, but where
// both say the same, or only one concerns more than packets.
func both(a, b path) path {
	p := path{
		Off: a.Off || b.Off, Loss: max(a.Loss, b.Loss), Delay: max(a.Delay, b.Delay),
		Twice: max(a.Twice, b.Twice), Behind: max(a.Behind, b.Behind), Flipped: max(a.Flipped, b.Flipped),
	}
	switch told := func(p path) bool { return p.Off || p.Loss > 0 || p.Delay > 0 }; {
	case a.TCP == b.TCP && a.UDP == b.UDP, !told(b):
		p.TCP, p.UDP = a.TCP, a.UDP
	case !told(a):
		p.TCP, p.UDP = b.TCP, b.UDP
	}
	return p
}

// between are the ways from each of some nodes to each other node; both ways of
// them, or only there.
func between(nodes, others []string, p path, back bool) (all []bent) {
	for _, a := range nodes {
		for _, b := range others {
			if a == b {
				continue
			}
			if all = append(all, bent{a, b, p}); back {
				all = append(all, bent{b, a, p})
			}
		}
	}
	return all
}
