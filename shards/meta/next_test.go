package meta

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// group reads "a b! -c +d": voters; "-" has no vote, "!" is dead, "+" a non-voter
// that has caught up.
func group(text string) Group {
	g := Group{Incarnation: 1, Leader: "a", Term: 3, Last: 1000}
	for _, word := range strings.Fields(text) {
		m := Member{Life: 1, Voter: !strings.ContainsAny(word, "+-"), Live: !strings.Contains(word, "!")}
		m.Node = strings.Trim(word, "+-!")
		if m.Live && !strings.Contains(word, "-") {
			m.Level = levelFor
		}
		g.Members = append(g.Members, m)
	}
	return g
}

func TestNext(t *testing.T) {
	for _, c := range []struct{ name, wanted, is, want string }{
		{"as it should be", "a b c", "a b c", ""},
		{"dead and wanted", "a b c", "a b c!", ""},

		{"a live move begins", "a b d", "a b c", "add non-voter d"},
		{"it waits for the copy", "a b d", "a b c -d", "wait: node d has not caught up"},
		{"the vote", "a b d", "a b c +d", "add voter d"},
		{"the old one goes", "a b d", "a b c d", "remove c"},
		{"the leader itself goes", "b c d", "a b c d", "transfer b"},
		{"the leader itself, no heir", "b c d", "a b! c! d!", "wait: nobody can take the lead from this node"},
		{"the old one died on the way", "a b d", "a b c! d", "remove c"},
		{"a voter that stays died on the way", "a b d", "a b! c +d", "wait: if node d died now, too few of the voters would be alive"},
		{"the new one died on the way", "a b d", "a b c -d!", "wait: node d has not caught up"},

		{"a dead one is replaced", "a b d", "a b c!", "add non-voter d"},
		{"it stays until the copy is there", "a b d", "a b c! -d", "wait: node d has not caught up"},
		{"it goes before the new one votes", "a b d", "a b c! +d", "remove c"},
		{"then the vote", "a b d", "a b +d", "add voter d"},
		{"a second one dies", "a b d", "a b! c! +d", "wait: without node c too few of the voters would be alive"},
		{"five voters, two dead", "a b c f g", "a b c d! e! +f +g", "remove d"},
		{"five voters, two dead, one gone", "a b c f g", "a b c e! +f +g", "remove e"},

		{"one grows to three", "a b c", "a", "add non-voter b"},
		{"both copies first", "a b c", "a +b", "add non-voter c"},
		{"no vote alone", "a b c", "a +b -c", "wait: node c has not caught up"},
		{"both votes", "a b c", "a +b +c", "add voter b"},
		{"the second one follows at once", "a b c", "a b +c", "add voter c"},
		{"an even number, half dead", "a b c", "a b! +c", "wait: if node c died now, too few of the voters would be alive"},

		{"three shrink to one and a copy", "a -b", "a b c", "demote b"},
		{"then the other goes", "a -b", "a +b c", "remove c"},
		{"not while the other is dead", "a -b", "a b!", "wait: without node b too few of the voters would be alive"},

		{"what is left of an abandoned step", "a b c", "a b c -d", "remove d"},
		{"and is dead", "a b c", "a b c -d!", "remove d"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := founded(t, 1, 3, "a", "b", "c", "d", "e", "f", "g")
			m = must(t, m, Command{Op: OpShard, Number: 1, Seen: m.Shards[1].Revision, Shard: &Shard{Incarnation: 1, Phase: Ready, Replicas: set(strings.Fields(c.wanted)...)}})
			a := Next(m, 1, "a", group(c.is), 7)
			got := strings.TrimSpace(fmt.Sprintf("%s %s", a.Do, a.Node))
			if a.Do == Wait && a.Why != "" {
				got = "wait: " + strings.ReplaceAll(a.Why, "node node ", "node ") // it uses names, and d's is "node d"
			}
			if got != c.want {
				t.Errorf("%s, wanted %s: %q, want %q", c.is, c.wanted, got, c.want)
			}
			if a.Do != Wait && a.Config != 7 {
				t.Errorf("the configuration is not named: %+v", a)
			}
		})
	}
}

func TestNextHurriesWhereVotesAreMissing(t *testing.T) {
	m := founded(t, 1, 3, "a", "b", "c")
	m = must(t, m, Command{Op: OpShard, Number: 1, Seen: m.Shards[1].Revision, Shard: &Shard{Incarnation: 1, Phase: Ready, Replicas: set("a", "b", "c")}})
	g := group("a +b +c")
	for level, want := range map[time.Duration]Deed{hurryFor - 1: Wait, hurryFor: AddVoter} {
		g.Members[1].Level, g.Members[2].Level = level, level
		if a := Next(m, 1, "a", g, 7); a.Do != want {
			t.Errorf("after %v: %+v", level, a)
		}
	}
	g.Last = 10
	g.Members[1].Level, g.Members[2].Level = 1, 1
	if a := Next(m, 1, "a", g, 7); a.Do != AddVoter {
		t.Errorf("a group of ten entries: %+v", a)
	}
}

func TestNextKeepsOffOtherLives(t *testing.T) {
	m := founded(t, 1, 3, "a", "b", "c")
	m = must(t, m, Command{Op: OpShard, Number: 1, Seen: m.Shards[1].Revision, Shard: &Shard{Incarnation: 1, Phase: Creating, Founder: "a", Replicas: set("a", "b", "c")}})
	if a := Next(m, 1, "a", group("a"), 7); a.Do != Wait || a.Why == "" {
		t.Errorf("a shard that is being created: %+v", a)
	}
	s := m.Shards[1]
	s.Phase = Ready
	s.Incarnation = 2
	m = must(t, m, Command{Op: OpShard, Number: 1, Seen: s.Revision, Shard: &s})
	if a := Next(m, 1, "a", group("a"), 7); a.Do != Wait || a.Why == "" {
		t.Errorf("a group of an earlier incarnation: %+v", a)
	}
	s = m.Shards[1]
	s.Replicas = append([]Replica(nil), s.Replicas...)
	s.Replicas[1].Life = 0 // b lost its log and gets another life
	m = must(t, m, Command{Op: OpShard, Number: 1, Seen: s.Revision, Shard: &s})
	g := group("a b! c")
	g.Incarnation = 2
	if a := Next(m, 1, "a", g, 7); a.Do != AddNonvoter || a.Node != "b" || a.Life != m.Revision {
		t.Errorf("a replica's next life: %+v", a)
	}
}
