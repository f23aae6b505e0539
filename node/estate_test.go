package node

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/starling-lb/starling/node/handover"
	"github.com/starling-lb/starling/proxy/backend"
)

// heard is how many things were taken over, and left out.
func (f *filed) heard(of string) string {
	count := func(outcome string) float64 {
		var m dto.Metric
		if err := f.handed.WithLabelValues(of, outcome).Write(&m); err != nil {
			f.t.Fatal(err)
		}
		return m.GetGauge().GetValue()
	}
	return fmt.Sprintf("%v/%v", count(takenOver), count(leftOut))
}

// What another version of the program leaves is used as far as it is understood, and
// the rest is counted; what cannot be read changes nothing.
func TestEstateOfAnotherVersion(t *testing.T) {
	f := newFiled(t, twoPools)
	b := f.proxy.Pools()[0].Backends()
	f.proxy.Pools()[0].Eject(b[0], time.Now(), time.Hour)
	var left map[string]any
	if err := json.Unmarshal(f.bequeath(), &left); err != nil {
		t.Fatal(err)
	}
	g := newFiled(t, strings.ReplaceAll(twoPools, "{id: b2", "{id: b9"))
	for _, text := range []string{"nonsense", `{"version":2,"pools":[{"pool":"p","backends":[{"id":"b1"}]}]}`, `{"version":1,"pools":7}`} {
		g.goOnWith([]byte(text))
	}
	g.goOnWith(nil) // an older program leaves nothing
	if got := g.heard("estate") + " " + g.heard("backend"); got != "0/3 0/0" || g.Backends().Backends[0].State != backend.Active {
		t.Errorf("of what is not understood: %s, %+v", got, g.Backends().Backends[0])
	}
	pools := left["pools"].([]any)
	first := pools[0].(map[string]any)
	first["backends"].([]any)[0].(map[string]any)["mood"] = "of a later version"
	first["backends"] = append(first["backends"].([]any), map[string]any{"id": "b3", "since": 5})
	left["pools"] = append(pools, map[string]any{"pool": "none", "backends": []any{map[string]any{"id": "b4"}}})
	left["weather"] = "fine"
	text, err := json.Marshal(left)
	if err != nil {
		t.Fatal(err)
	}
	g.goOnWith(text)
	if got := g.heard("estate") + " " + g.heard("backend") + " " + g.heard("ticket_key"); got != "1/3 2/3 0/0" {
		t.Errorf("taken over and left out: %s", got) // b1 of p and b3 of q; not b2, one that cannot be read, and one of no pool
	}
	if s := g.Backends().Backends[0]; s.State != backend.Ejected || s.Reason != "by an operator" {
		t.Errorf("%+v", s)
	}
}

// What is left is bounded; those that matter most come first, and what cannot be said
// is left out.
func TestEstateIsBounded(t *testing.T) {
	all := []backend.Memory{{ID: "a", State: backend.Active}, {ID: "b", State: backend.Active, Running: math.NaN()}, {ID: "c", State: backend.Ejected}}
	whole, left := pack(all, 1<<20)
	if len(whole) != 2 || !strings.Contains(string(whole[0]), `"id":"c"`) || left != 1<<20-len(whole[0])-len(whole[1]) {
		t.Errorf("%s, and there is room for %d", whole, left)
	}
	if part, left := pack(all, len(whole[0])+10); len(part) != 1 || string(part[0]) != string(whole[0]) || left != 10 {
		t.Errorf("%s, and there is room for %d", part, left)
	}
	f := newFiled(t, twoPools)
	if text := f.bequeath(); len(text) > handover.MaxEstate || !json.Valid(text) {
		t.Errorf("%s", text)
	}
}
