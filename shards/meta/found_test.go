package meta

import (
	"strings"
	"testing"
)

func TestFound(t *testing.T) {
	with := func(n []Newcomer, i int, change func(*Newcomer)) []Newcomer {
		change(&n[i])
		return n
	}
	for name, c := range map[string]struct {
		self string
		seen []Newcomer
		want Founding // Reason: a part of it
	}{
		"alone":                              {"a", newcomers("a"), Founding{Found: true, Sees: 1}},
		"the lowest of three":                {"a", newcomers("b", "a", "c"), Founding{Found: true, Sees: 3}},
		"another of three":                   {"b", newcomers("b", "a", "c"), Founding{Sees: 3, Reason: "node node a founds"}},
		"too few":                            {"a", with(newcomers("a", "b"), 0, func(n *Newcomer) { n.Expect = 3 }), Founding{Sees: 2, Reason: "2 of the 3"}},
		"too many":                           {"a", with(newcomers("a", "b"), 0, func(n *Newcomer) { n.Expect = 1 }), Founding{Sees: 2, Reason: "sees 2 new nodes"}},
		"one expects otherwise":              {"a", with(newcomers("a", "b"), 1, func(n *Newcomer) { n.Expect = 3 }), Founding{Sees: 2, Reason: "node node b expects 3"}},
		"one sees fewer":                     {"a", with(newcomers("a", "b"), 1, func(n *Newcomer) { n.Sees = 1 }), Founding{Sees: 2, Reason: "node node b sees 1"}},
		"this one has not said what it sees": {"a", with(newcomers("a", "b"), 0, func(n *Newcomer) { n.Sees = 0 }), Founding{Found: true, Sees: 2}},
		"the lowest hosts nothing":           {"b", with(newcomers("a", "b"), 0, func(n *Newcomer) { n.Hosts = false }), Founding{Found: true, Sees: 2}},
		"none hosts":                         {"a", with(newcomers("a"), 0, func(n *Newcomer) { n.Hosts = false }), Founding{Sees: 1, Reason: "shards.host"}},
		"there is a cluster":                 {"a", with(newcomers("a", "b"), 1, func(n *Newcomer) { n.Cluster = "c" }), Founding{Join: "c", Reason: "let into cluster c"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := Found(c.self, c.seen)
			if !strings.Contains(got.Reason, c.want.Reason) || c.want.Reason == "" && got.Reason != "" {
				t.Errorf("reason %q, want %q", got.Reason, c.want.Reason)
			}
			got.Reason, c.want.Reason = "", ""
			if got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

func TestNewMapsAreUnlike(t *testing.T) {
	one, two := NewMap("a", 16, 3, 1, newcomers("a")), NewMap("a", 16, 3, 1, newcomers("a"))
	if one.Cluster == two.Cluster || string(one.Secret) == string(two.Secret) {
		t.Error("two clusters have the same id or secret")
	}
	if err := one.check(); err != nil || one.Count() != 16 {
		t.Errorf("%v, %d shards", err, one.Count())
	}
}
