package node

import (
	"testing"
	"time"

	"github.com/starling-lb/starling/shards"
)

const threePools = `
pools:
  p: {backends: [{id: b1, url: http://127.0.0.1:1}], health: {enabled: false}, sticky: {consistency: strict, ttl: 5m}}
  q: {backends: [{id: b2, url: http://127.0.0.1:2}], health: {enabled: false}, sticky: {ttl: 3h, bind_timeout: 700ms}, backend: {drain_timeout: 20m}}
  r: {backends: [{id: b3, url: http://127.0.0.1:3}], health: {enabled: false}}
listeners:
  - {address: 127.0.0.1:0, routes: [{path_prefix: /q, pool: q}, {path_prefix: /r, pool: r}, {pool: p}]}
`

// TestNobodysBackend: a process that has never seen a backend, and knows of two pools
// with sessions, takes it for none's; and what is none's has the longest and strictest
// rule of all, so that no pool's promise is broken.
func TestNobodysBackend(t *testing.T) {
	r := newRules(newFiled(t, threePools).Node)
	for id, want := range map[string]string{"b1": "p", "b2": "q", "b3": "", "b9": ""} {
		if got := r.Of(id); got != want {
			t.Errorf("%s is of %q, want %q", id, got, want)
		}
	}
	p, q := r.Pool("p"), r.Pool("q")
	if !p.Strict || p.TTL != 5*time.Minute || q.Strict || q.TTL != 3*time.Hour {
		t.Fatalf("the pools' own: %+v, %+v", p, q)
	}
	want := shards.Rule{Strict: true, TTL: q.TTL, Drain: q.Drain, Wait: q.Wait, Stay: max(p.Stay, q.Stay)}
	if got := r.Pool(""); got != want {
		t.Errorf("nobody's: %+v, want %+v", got, want)
	}
}
