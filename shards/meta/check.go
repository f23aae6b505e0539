package meta

import (
	"fmt"
	"slices"
	"strings"
)

// check says whether a map may stand at the beginning of a cluster, or come from
// a file.
func (m *Map) check() error {
	switch {
	case m.Cluster == "":
		return fmt.Errorf("%w: the cluster has no id", ErrInvalid)
	case len(m.Shards) < 2 || len(m.Shards) > maxShards+1:
		return fmt.Errorf("%w: %d shards, want 1 to %d", ErrInvalid, m.Count(), maxShards)
	case m.Replicas < 1 || m.Replicas > maxReplicas:
		return fmt.Errorf("%w: %d replicas, want 1 to %d", ErrInvalid, m.Replicas, maxReplicas)
	case m.Secret != nil && len(m.Secret) < minSecret:
		return fmt.Errorf("%w: a secret of %d bytes, want %d at least", ErrInvalid, len(m.Secret), minSecret)
	}
	for id, n := range m.Nodes {
		if err := n.check(); err != nil {
			return fmt.Errorf("node %q: %w", id, err)
		}
	}
	for i, s := range m.Shards {
		if err := s.check(); err != nil {
			return fmt.Errorf("shard %d: %w", i, err)
		}
	}
	for name, p := range m.Pools {
		if err := p.check(); err != nil {
			return fmt.Errorf("pool %q: %w", name, err)
		}
	}
	return nil
}

// maxReplicas leaves room for one on the way in beside those wanted.
const maxReplicas = 9

func (n Node) check() error {
	switch n.State {
	case Joining, Active, Draining, Dead, Removed:
		return nil
	}
	return fmt.Errorf("%w: state %q", ErrInvalid, n.State)
}

func (s Shard) check() error {
	switch s.Phase {
	case Planned, Creating, Ready:
	default:
		return fmt.Errorf("%w: phase %q", ErrInvalid, s.Phase)
	}
	if s.Phase != Planned && s.Incarnation == 0 || len(s.Replicas) > maxReplicas {
		return fmt.Errorf("%w: incarnation %d with %d replicas", ErrInvalid, s.Incarnation, len(s.Replicas))
	}
	if _, founded := s.Wants(s.Founder); s.Phase == Creating && !founded {
		return fmt.Errorf("%w: the founder %q holds no replica", ErrInvalid, s.Founder)
	}
	if s.Phase == Ready && s.Voters() == 0 {
		return fmt.Errorf("%w: nobody votes", ErrInvalid)
	}
	if !slices.IsSortedFunc(s.Replicas, func(a, b Replica) int { return strings.Compare(a.Node, b.Node) }) {
		return fmt.Errorf("%w: its replicas are not in order", ErrInvalid)
	}
	for i, r := range s.Replicas {
		if r.Node == "" || i > 0 && s.Replicas[i-1].Node == r.Node {
			return fmt.Errorf("%w: node %q is there twice, or has no id", ErrInvalid, r.Node)
		}
	}
	return nil
}

func (p Pool) check() error {
	for i, b := range p.Backends {
		switch {
		case b.ID == "" || b.URL == "" || b.Weight < 1:
			return fmt.Errorf("%w: backend %q at %q with weight %d", ErrInvalid, b.ID, b.URL, b.Weight)
		case i > 0 && p.Backends[i-1].ID >= b.ID:
			return fmt.Errorf("%w: backend %q is there twice, or out of order", ErrInvalid, b.ID)
		case b.Out.Length < 0 || b.Out.Number == 0 && b.Out.Length > 0:
			return fmt.Errorf("%w: backend %q is out for %d ns by word %d", ErrInvalid, b.ID, b.Out.Length, b.Out.Number)
		}
	}
	return nil
}
