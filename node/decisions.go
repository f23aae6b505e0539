package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"

	"github.com/starling-lb/starling/node/admin"
	"github.com/starling-lb/starling/node/api"
	"github.com/starling-lb/starling/proxy/backend"
	"github.com/starling-lb/starling/shards/meta"
)

// decision is what operators decided of one backend.
type decision struct {
	Pool    string          `json:"pool"`
	Added   *backend.Config `json:"added,omitempty"` // by the API; perhaps nobody else names it
	Removed bool            `json:"removed,omitempty"`
	Drained bool            `json:"drained,omitempty"`
	Weight  int             `json:"weight,omitempty"` // 0: as it is named
	Out     meta.Word       `json:"out,omitzero"`     // on its ejection
}

// decisions are those in force, as operator.json in the data directory holds
// them. They are small: written whole, aside, and renamed.
type decisions struct {
	Format   int                 `json:"format"`
	Backends map[string]decision `json:"backends"`
	Policies map[string]string   `json:"policies"` // by pool
	Seconds  map[string]second   `json:"seconds,omitempty"`
	Rests    map[string]string   `json:"rests,omitempty"` // by pool: on or off, of rebalancing
}

// second is a policy that operators have measured beside a pool's first.
type second struct {
	Policy string  `json:"policy"`
	Share  float64 `json:"share"`
}

const decisionsFormat = 1

func readDecisions(path string) (decisions, error) {
	d := decisions{Format: decisionsFormat}
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return d, nil
	}
	if err != nil {
		return d, err
	}
	if err := json.Unmarshal(data, &d); err != nil {
		return d, fmt.Errorf("%s is not readable as operators' decisions: %w; restore it, or move it away to start without any", path, err)
	}
	if d.Format != decisionsFormat {
		return d, fmt.Errorf("%s has format %d, this starling knows %d; run the starling that wrote it, or a newer one", path, d.Format, decisionsFormat)
	}
	return d, nil
}

// with is a copy that differs in one backend's decision.
func (d decisions) with(id string, change func(*decision)) decisions {
	next := d
	next.Backends = maps.Clone(d.Backends)
	if next.Backends == nil {
		next.Backends = map[string]decision{}
	}
	one := next.Backends[id]
	change(&one)
	next.Backends[id] = one
	if one == (decision{Pool: one.Pool}) {
		delete(next.Backends, id)
	}
	return next
}

// withPolicy is a copy that differs in one pool's policies; "" is none.
func (d decisions) withPolicy(pool string, want api.Policy) decisions {
	next := d
	next.Policies = changed(d.Policies, pool, want.Policy)
	next.Seconds = changed(d.Seconds, pool, second{want.Second, want.Share})
	return next
}

// withRest is a copy where a pool's rebalancing is on or off.
func (d decisions) withRest(pool, word string) decisions {
	next := d
	next.Rests = changed(d.Rests, pool, word)
	return next
}

// policy is what operators decided of a pool's policies.
func (d decisions) policy(pool string) api.Policy {
	s := d.Seconds[pool]
	return api.Policy{Policy: d.Policies[pool], Second: s.Policy, Share: s.Share}
}

// changed is a copy of m that has v at key; the zero V is none.
func changed[V comparable](m map[string]V, key string, v V) map[string]V {
	next := maps.Clone(m)
	if next == nil {
		next = map[string]V{}
	}
	var none V
	if next[key] = v; v == none {
		delete(next, key)
	}
	return next
}

func (d decisions) write(path string) error {
	data, err := json.MarshalIndent(d, "", "  ")
	if err != nil {
		panic("BUG: " + err.Error())
	}
	if err := replaceFile(path, append(data, '\n')); err != nil {
		return fmt.Errorf("the decision could not be kept, so it is not made: %w", err)
	}
	return nil
}

// refuse is an answer of the admin API.
func refuse(code admin.Code, format string, args ...any) error {
	return &admin.Error{Code: code, Message: fmt.Sprintf(format, args...)}
}
