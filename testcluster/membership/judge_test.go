package membership

import (
	"strings"
	"testing"
	"time"

	"github.com/starling-lb/starling/node/api"
)

// TestTheJudgeSees: each of what must not be is seen, and what may be is not.
func TestTheJudgeSees(t *testing.T) {
	w := &town{t: t, ids: map[int]string{0: "a", 1: "b"}, leaders: map[string]string{}, homes: map[string]string{}, since: map[string]time.Time{}}
	page := func(leads, term string) string {
		return "starling_shard_leader{shard=\"1\"} " + leads + "\nstarling_raft_term{shard=\"1\"} " + term + "\n"
	}
	expect := func(what string, wrong ...string) {
		t.Helper()
		if len(w.wrong) != len(wrong) || !strings.Contains(strings.Join(w.wrong, ";"), strings.Join(wrong, ";")) {
			t.Errorf("%s: %q, want %q", what, w.wrong, wrong)
		}
		w.wrong = nil
	}
	w.leads(0, page("1", "3"))
	w.leads(1, page("0", "3"))
	w.leads(1, page("1", "4"))
	w.leads(0, page("1", "3"))
	expect("one leader in a term")
	w.leads(0, page("1", "4"))
	expect("two leaders in a term", `shard="1"} in term 4 is led by b and by a`)

	l := api.ShardList{Shards: []api.Shard{{ID: 2, Term: 5, Replicas: []api.Replica{
		{ID: "a", Role: api.LeaderRole}, {ID: "b", Role: api.VoterRole}, {ID: "c", Role: api.VoterRole}, {ID: "d", Role: api.NonvoterRole}, {ID: "e", Role: api.WantedRole},
	}}}}
	of := func(live string) map[string]struct{} {
		return minorities(l, func(id string) bool { return strings.Contains(live, id) })
	}
	w.doubt(of("ab"))
	w.doubt(of("ade"))
	w.doubt(of("abc"))
	w.doubt(of("ade"))
	expect("a minority, for a moment")
	w.doubt(of("ade"))
	expect("a minority that lasts", "of 3 voters of shard 2 in term 5, 1 live")

	w.took("s1", "b1")
	w.took("s1", "b1")
	w.took("s2", "b2")
	expect("sessions that stay")
	w.took("s1", "b2")
	expect("a session that moves", "session s1 is at b2, and was at b1")
}
