package proxy

import (
	"bytes"
	"slices"
	"strings"
	"time"

	"github.com/starling-lb/starling/proxy/backend"
	"github.com/starling-lb/starling/proxy/wire"
)

// PlacementConfig is what policies go by.
type PlacementConfig struct {
	Knee        int     `yaml:"knee"`           // streams at a backend that slow each other to half the speed of one alone
	Draws       int     `yaml:"draws" auto:"0"` // backends that p2c draws for each stream; auto: 2 to 4, by how many arrive within a report's age
	HashKey     string  `yaml:"hash_key"`       // what consistent_hash goes by: client_ip, header:NAME, cookie:NAME, query:NAME or json:FIELD
	Second      string  `yaml:"second"`         // a policy to measure beside the first; empty: none
	SecondShare float64 `yaml:"second_share"`   // of the streams, 0 to 1, that it places
	BoundedLoad int     `yaml:"bounded_load"`   // percent of its part of the load that consistent_hash gives a backend at most; 0: no bound
}

// DefaultPlacement holds the contract's defaults.
func DefaultPlacement() PlacementConfig {
	return PlacementConfig{Knee: 32, HashKey: "client_ip", BoundedLoad: 125}
}

// Validate reports every fault by the key it concerns.
func (c PlacementConfig) Validate(fault func(key, format string, args ...any)) {
	if c.Knee < 1 || c.Knee > 10_000 {
		fault("knee", "%d is out of range; write a number from 1 to 10000, or nothing for 32", c.Knee)
	}
	if c.Draws != 0 && c.Draws < 2 || c.Draws > backend.MaxDraws {
		fault("draws", "%d is out of range; write auto, or a number from 2 to %d", c.Draws, backend.MaxDraws)
	}
	if c.Second != "" && !slices.Contains(backend.Policies(), c.Second) {
		fault("second", "%q is no policy; write one of %s", c.Second, strings.Join(backend.Policies(), ", "))
	}
	if c.SecondShare > 1 || c.SecondShare > 0 && c.Second == "" {
		fault("second_share", "%v is a share of placement.second, which is %q; write 0 to 1, and a policy there", c.SecondShare, c.Second)
	}
	if _, err := parseKeySource(c.HashKey); err != nil {
		fault("hash_key", "%v", err)
	}
	if c.BoundedLoad != 0 && c.BoundedLoad <= 100 || c.BoundedLoad > 1000 {
		fault("bounded_load", "%d is out of range; write 101 to 1000 percent, or 0 for no bound", c.BoundedLoad)
	}
}

// placement is what the configuration says of how the pool chooses.
func (c PoolConfig) placement() backend.Placement {
	return backend.Placement{
		Policy: c.Policy, Second: c.Placement.Second, Share: c.Placement.SecondShare, Knee: c.Placement.Knee, Draws: c.Placement.Draws, BoundedLoad: c.Placement.BoundedLoad, SlowStart: c.Backend.SlowStart,
	}
}

// sampleEvery is the age that a reading of speeds may have.
const sampleEvery = 100 * time.Millisecond

// sampleLoop has the pools read their backends' speeds.
func (s *Server) sampleLoop() {
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case now := <-tick.C:
			for _, p := range s.now.Load().all() {
				p.Sample(now)
			}
		}
	}
}

// pace is who hears of the answer's pieces: of one that comes as it is made they
// tell how fast the backend is, of any other how fast the client reads.
func (s *Stream) pace() wire.Pace {
	kind, _ := s.client.resp.Field("content-type")
	if bytes.HasPrefix(kind, []byte("text/event-stream")) || bytes.HasPrefix(kind, []byte("application/x-ndjson")) ||
		bytes.HasPrefix(kind, []byte("application/jsonl")) || bytes.HasPrefix(kind, []byte("application/stream+json")) {
		return s
	}
	return nil
}

// Came hears of a piece of the answer, of so many bytes.
func (s *Stream) Came(n int) {
	if !s.lease.Flowing() {
		s.lease.Began(time.Now())
		return
	}
	s.lease.Progress(1, n)
}
