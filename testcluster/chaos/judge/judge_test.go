package judge

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/starling-lb/starling/node/api"
	"github.com/starling-lb/starling/testcluster/chaos/history"
	"github.com/starling-lb/starling/testcluster/llm"
)

// tale is a run that is made by hand.
type tale struct {
	*history.Run
}

func at(seconds float64) time.Time {
	return time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC).Add(time.Duration(seconds * float64(time.Second)))
}

// turn is one that went well: by a node, at a backend, at an epoch, found so.
func (t *tale) turn(id, session, node, backend string, epoch uint64, lookup string, from, to float64) *history.Turn {
	t.Turns = append(t.Turns, history.Turn{
		ID: id, Session: session, Number: len(t.Turns), Attempt: 1, Kind: "sse", Node: node, Backend: backend, Epoch: epoch,
		Due: at(from), Began: at(from), First: at(from + 0.05), Ended: at(to), Status: 200, End: "clean", Whole: true, Bytes: 100,
	})
	t.Served = append(t.Served, llm.Turn{Backend: backend, RequestID: id, Session: session, Epoch: fmt.Sprint(epoch), Start: at(from + 0.01), End: at(to - 0.001), Outcome: llm.Done})
	first := 50.0
	t.Lines = append(t.Lines, history.Line{Node: node, At: at(from), RequestID: id, Status: 200, Backend: backend, Epoch: epoch, Lookup: lookup, Attempts: 1, First: &first, Took: (to - from) * 1000, Reason: "done"})
	return &t.Turns[len(t.Turns)-1]
}

// stale is a turn that its node logged as one.
func (t *tale) stale() { t.Lines[len(t.Lines)-1].Stale = true }

// dies is a turn of s at b1 whose node is killed when others are elsewhere already.
func (t *tale) dies(id, epoch string) {
	turn := t.turn(id, "s", "n2", "b1", 3, "hit", 18, 25)
	turn.End, turn.Whole, turn.Epoch = "broken", false, 0
	t.Served[len(t.Served)-1].Epoch = epoch
	t.Lines = t.Lines[:len(t.Lines)-1]
	t.fault(history.Kill, 24.9, 26, "n2", "n2")
}

func (t *tale) fault(kind history.Kind, from, to float64, target string, breaks ...string) {
	t.Faults = append(t.Faults, history.Fault{ID: len(t.Faults) + 1, Kind: kind, Target: []string{target}, Detail: "as told", Began: at(from), Ended: at(to), Breaks: breaks})
}

// read is a leader's word.
func (t *tale) read(session, backend string, epoch uint64, from, to float64) {
	t.Reads = append(t.Reads, history.Read{Session: session, Node: "n1", Began: at(from), Ended: at(to), Backend: backend, Epoch: epoch})
}

const quietMetrics = `# TYPE starling_streams_in_flight gauge
starling_streams_in_flight{backend="b1",pool="llm"} %d
# TYPE starling_moves_total counter
starling_moves_total{pool="llm",result="done"} %d
# TYPE starling_provisional_bindings gauge
starling_provisional_bindings %d
`

// peace is a run in which all is well: three nodes, session s at b1, turns without
// a session.
func peace() *tale {
	t := &tale{&history.Run{
		Scenario: "tale", Nodes: 3, Backends: 2, Consistency: "available", Began: at(0), Healed: at(50), Ended: at(60),
		Recovered: map[string]time.Duration{"leaders": 2 * time.Second}, Wanted: map[string]time.Duration{"leaders": 5 * time.Second},
	}}
	for i := range 40 {
		t.turn(fmt.Sprint("free", i), "", fmt.Sprintf("n%d", 1+i%3), "b1", 0, "no_key", float64(i), float64(i)+0.9)
	}
	t.turn("s1", "s", "n1", "b1", 3, "new", 1, 2)
	t.turn("s2", "s", "n2", "b1", 3, "hit", 5, 6)
	t.read("s", "b1", 3, 8, 8.1)
	for _, node := range []string{"n1", "n2", "n3"} {
		t.Last = append(t.Last, dump(node, at(61)))
		for s := range 60 {
			t.Samples = append(t.Samples, history.Sample{At: at(float64(s)), Node: node, Up: true, Alive: 3, Routines: 200, Files: 80, Memory: 50 << 20})
		}
		t.Leaders = append(t.Leaders, history.Leader{Shard: 1, Incarnation: 1, Term: uint64(len(t.Last)), Node: node})
		t.States = append(t.States, history.State{At: at(20), Node: node, Shard: 1, Incarnation: 1, Applied: 63, Digest: "aa"})
	}
	t.votes(1, 59, 3, "n1", "n1 n2 n3")
	return t
}

// votes are the voters of shard 1 by the word of who leads it.
func (t *tale) votes(from, to float64, term uint64, leader, voters string) {
	t.Votings = append(t.Votings, history.Voting{From: at(from), To: at(to), Shard: 1, Incarnation: 1, Term: term, Leader: leader, Voters: strings.Fields(voters), Live: 3})
}

func dump(node string, when time.Time) history.Dump {
	replica := func(n string, r api.ReplicaRole) api.Replica { return api.Replica{Node: n, Role: r} }
	member := func(n string) api.Member { return api.Member{Name: n, State: "alive"} }
	return history.Dump{
		Node: node, At: when,
		Status:   api.Status{Cluster: api.Cluster{ID: "c1"}},
		Members:  api.Members{Members: []api.Member{member("n1"), member("n2"), member("n3")}},
		Backends: api.Backends{Backends: []api.Backend{{ID: "b1"}, {ID: "b2"}}},
		Shards: api.ShardList{Shards: []api.Shard{{ID: 1, Incarnation: 1, Leader: "n1", Replicas: []api.Replica{
			replica("n1", api.LeaderRole), replica("n2", api.VoterRole), replica("n3", api.VoterRole)}}}},
		Sessions: map[string]api.Session{"s": {Shard: 1, Backend: "b1", Epoch: 3}},
		Metrics:  fmt.Sprintf(quietMetrics, 0, 0, 0),
	}
}

// broken are the promises that a run breaks.
func broken(t *tale) (names []string) {
	for _, v := range Judge(t.Run) {
		if !v.Held {
			names = append(names, v.Promise)
		}
	}
	return names
}

// moved has session s live at b2 from second 20 on, by epoch 4, as all know.
func (t *tale) moved(lookup string) {
	t.turn("s3", "s", "n1", "b2", 4, lookup, 20, 21)
	t.turn("s4", "s", "n2", "b2", 4, "hit", 23, 24)
	for i := range t.Last {
		t.Last[i].Sessions["s"] = api.Session{Shard: 1, Backend: "b2", Epoch: 4}
	}
}

// TestCheckersCatch: each case is peace with one thing wrong. Cases that break
// nothing are what the promises except.
func TestCheckersCatch(t *testing.T) {
	for _, c := range []struct {
		name string
		edit func(*tale)
		want string // promises, in Judge's order
	}{
		{"peace", func(t *tale) {}, ""},

		{"two backends in one epoch", func(t *tale) { t.turn("s3", "s", "n3", "b2", 3, "hit", 20, 21) }, "P1"},
		{"a turn that no backend took", func(t *tale) {
			t.turn("s3", "s", "n3", "b2", 3, "repin", 20, 21)
			t.Lines[len(t.Lines)-1].Code = "backend_refused"
			t.Served = t.Served[:len(t.Served)-1]
		}, ""},
		{"a guess has no epoch to break", func(t *tale) { t.turn("s3", "s", "n3", "b2", 0, "fallback", 20, 21) }, ""},
		{"a detour around a backend", func(t *tale) { t.turn("s3", "s", "n3", "b2", 3, "repin", 20, 21); t.stale() }, ""},
		{"a detour that is not logged", func(t *tale) { t.turn("s3", "s", "n3", "b2", 3, "repin", 20, 21) }, "P1"},
		{"a detour under strict", func(t *tale) { t.Consistency = "strict"; t.turn("s3", "s", "n3", "b2", 3, "repin", 20, 21); t.stale() }, "P1"},
		{"a dump that says another backend", func(t *tale) { t.Last[2].Sessions["s"] = api.Session{Backend: "b2", Epoch: 3} }, "P1 linear"},
		{"a cache that is stale after a move", func(t *tale) {
			t.fault(history.Backend, 15, 19, "b1", "b1")
			t.moved("repin")
			t.turn("s5", "s", "n3", "b1", 3, "hit", 26, 27)
		}, "P1"},
		{"a cache within its lease", func(t *tale) {
			t.fault(history.Backend, 15, 19, "b1", "b1")
			t.moved("repin")
			t.turn("s5", "s", "n3", "b1", 3, "hit", 21, 22)
		}, ""},
		{"last known, by a node that was cut off", func(t *tale) {
			t.fault(history.Backend, 15, 19, "b1", "b1")
			t.moved("repin")
			t.turn("s5", "s", "n3", "b1", 3, "fallback", 26, 27)
		}, ""},
		{"a node that knew better", func(t *tale) {
			t.fault(history.Backend, 15, 19, "b1", "b1")
			t.moved("repin")
			t.turn("s5", "s", "n1", "b1", 3, "fallback", 22, 23)
		}, "P1"},

		{"a node that knew better, in the process before", func(t *tale) {
			t.fault(history.Backend, 15, 19, "b1", "b1")
			t.moved("repin")
			t.turn("s5", "s", "n1", "b1", 3, "fallback", 22, 23)
			t.fault(history.HandOver, 21, 21.5, "n1")
		}, ""},
		{"a node that knew better, and another handed over", func(t *tale) {
			t.fault(history.Backend, 15, 19, "b1", "b1")
			t.moved("repin")
			t.turn("s5", "s", "n1", "b1", 3, "fallback", 22, 23)
			t.fault(history.HandOver, 21, 21.5, "n2")
		}, "P1"},

		{"a binding that is lost", func(t *tale) {
			t.fault(history.Kill, 15, 19, "n1", "n1")
			t.turn("s3", "s", "n2", "b1", 4, "new", 20, 21)
			for i := range t.Last {
				t.Last[i].Sessions["s"] = api.Session{Backend: "b1", Epoch: 4}
			}
		}, "P2 linear"},
		{"a binding that is not there at the end", func(t *tale) { delete(t.Last[1].Sessions, "s") }, "P2"},
		{"a binding that is lost, and nodes have left for good", func(t *tale) {
			delete(t.Last[1].Sessions, "s")
			t.fault(history.Leave, 15, 19, "n4")
			t.fault(history.Leave, 15, 19, "n5")
		}, "P2"},
		{"a binding that is lost, and nodes failed to leave", func(t *tale) {
			delete(t.Last[1].Sessions, "s")
			for _, node := range []string{"n4", "n5"} {
				t.fault(history.Leave, 15, 19, node)
				t.Faults[len(t.Faults)-1].Detail = "failed: it died"
			}
		}, ""},
		{"a binding that is lost, and two disks with it", func(t *tale) {
			delete(t.Last[1].Sessions, "s")
			t.fault(history.Wipe, 15, 19, "n1", "n1")
			t.fault(history.Wipe, 25, 29, "n2", "n2")
		}, ""},
		{"expiry before its time", func(t *tale) {
			t.turn("s3", "s", "n2", "b1", 4, "lost", 20, 21)
			for i := range t.Last {
				t.Last[i].Sessions["s"] = api.Session{Backend: "b1", Epoch: 4}
			}
		}, "P2"},

		{"two backends at once", func(t *tale) {
			t.Last[0].Metrics = fmt.Sprintf(quietMetrics, 0, 1, 0)
			t.turn("long", "s", "n2", "b1", 3, "hit", 18, 25)
			t.moved("hit")
		}, "P3"},
		{"the first backend is dead", func(t *tale) {
			t.fault(history.Backend, 19, 22, "b1", "b1")
			t.turn("long", "s", "n2", "b1", 3, "hit", 18, 25)
			t.moved("hit")
		}, ""},
		{"the first backend is only slow", func(t *tale) {
			t.fault(history.Backend, 19, 22, "b1")
			t.turn("long", "s", "n2", "b1", 3, "hit", 18, 25)
			t.moved("hit")
		}, "P3"},
		{"a node stood still", func(t *tale) {
			t.Last[0].Metrics = fmt.Sprintf(quietMetrics, 0, 1, 0)
			t.fault(history.Pause, 19, 22, "n2")
			t.turn("long", "s", "n2", "b1", 3, "hit", 18, 25)
			t.moved("hit")
		}, ""},
		{"another node stood still", func(t *tale) {
			t.Last[0].Metrics = fmt.Sprintf(quietMetrics, 0, 1, 0)
			t.fault(history.Pause, 19, 22, "n3")
			t.turn("long", "s", "n2", "b1", 3, "hit", 18, 25)
			t.moved("hit")
		}, "P3"},
		{"the first one's node is dead", func(t *tale) {
			t.fault(history.Kill, 19, 22, "n2", "n2")
			t.turn("long", "s", "n2", "b1", 3, "hit", 18, 25)
			t.moved("hit")
		}, ""},
		{"the first one was a guess, and its node's word of that died with it", func(t *tale) {
			t.dies("long", "")
			t.moved("hit")
		}, ""},
		{"it was no guess", func(t *tale) {
			t.dies("long", "3")
			t.moved("hit")
		}, "P3"},
		{"a node cannot reach the backend", func(t *tale) {
			t.fault(history.Backend, 13, 14, "b1", "b1")
			t.turn("long", "s", "n2", "b1", 3, "hit", 18, 25)
			t.stale()
			t.moved("repin")
		}, ""},
		{"nor under strict", func(t *tale) {
			t.Consistency = "strict"
			t.fault(history.Backend, 13, 14, "b1", "b1")
			t.turn("long", "s", "n2", "b1", 3, "hit", 18, 25)
			t.stale()
			t.moved("repin")
		}, "P3"},

		{"refused for want of a leader", func(t *tale) {
			t.fault(history.Kill, 19, 22, "n2", "n2")
			refuse(t, "no_leader", 20, 20.1)
		}, "P4"},
		{"strict refuses, and nothing was done", func(t *tale) {
			t.Consistency = "strict"
			refuse(t, "no_leader", 20, 20.1)
		}, "P4"},
		{"strict waits for an election", func(t *tale) {
			t.Consistency = "strict"
			t.fault(history.Kill, 19, 22, "n2", "n2")
			refuse(t, "no_leader", 20, 20.1)
		}, ""},
		{"a guess that nobody agreed on", func(t *tale) { t.Last[0].Metrics = fmt.Sprintf(quietMetrics, 0, 0, 1) }, "P4"},
		{"guesses that differ", func(t *tale) {
			t.turn("g1", "g", "n1", "b1", 0, "fallback", 30, 31)
			t.turn("g2", "g", "n2", "b2", 0, "fallback", 32, 33)
		}, "P4"},

		{"a move for nothing", func(t *tale) { t.moved("hit") }, "P5"},
		{"a planned move", func(t *tale) { t.moved("hit"); t.Last[0].Metrics = fmt.Sprintf(quietMetrics, 0, 1, 0) }, ""},
		{"a move off a dead backend", func(t *tale) { t.fault(history.Backend, 15, 22, "b1", "b1"); t.moved("repin") }, ""},

		{"a stream that nobody hurt breaks", func(t *tale) { breaks(t.turn("x", "", "n1", "b1", 0, "no_key", 30, 31)) }, "P6"},
		{"its node was killed", func(t *tale) {
			breaks(t.turn("x", "", "n1", "b1", 0, "no_key", 30, 31))
			t.fault(history.Kill, 30.9, 35, "n1", "n1")
		}, ""},
		{"another node was killed", func(t *tale) {
			breaks(t.turn("x", "", "n1", "b1", 0, "no_key", 30, 31))
			t.fault(history.Kill, 30.9, 35, "n2", "n2")
		}, "P6"},
		{"a partition cuts it", func(t *tale) {
			breaks(t.turn("x", "", "n1", "b1", 0, "no_key", 30, 31))
			t.fault(history.Partition, 30.9, 35, "n1")
		}, "P6"},
		{"its node closed its listener", func(t *tale) {
			untaken(t)
			t.fault(history.Restart, 30.9, 35, "n1")
		}, ""},
		{"another node did", func(t *tale) {
			untaken(t)
			t.fault(history.Restart, 30.9, 35, "n2")
		}, "P6"},
		{"the process before closed its connection", func(t *tale) {
			untaken(t)
			t.fault(history.HandOver, 24, 24.5, "n1")
		}, ""},
		{"that of another node did", func(t *tale) {
			untaken(t)
			t.fault(history.HandOver, 24, 24.5, "n2")
		}, "P6"},
		{"it had no connection any more", func(t *tale) {
			untaken(t)
			t.fault(history.HandOver, 20, 20.5, "n1")
		}, "P6"},
		{"it had begun the turn", func(t *tale) {
			breaks(t.turn("x", "", "n1", "b1", 0, "no_key", 30, 31))
			t.fault(history.HandOver, 24, 24.5, "n1")
		}, "P6"},
		{"a drain's deadline", func(t *tale) { t.Lines[0].Reason = "drained" }, "P6"},

		{"an end that only looks whole", func(t *tale) {
			x := t.turn("x", "", "n1", "b1", 0, "no_key", 30, 31)
			x.Whole, x.Note = false, "a clean end after 3 of 9 tokens"
		}, "P7"},
		{"a POST that was begun twice", func(t *tale) { t.Served = append(t.Served, t.Served[0]) }, "P7"},

		{"a backend that keeps its client's place", func(t *tale) { leaves(t, 1) }, "P8"},
		{"one that lets go", func(t *tale) { leaves(t, 0.02) }, ""},

		{"a count that is left over", func(t *tale) { t.Last[0].Metrics = fmt.Sprintf(quietMetrics, 1, 0, 0) }, "P9"},
		{"a count below nothing", func(t *tale) { t.Last[1].Backends.Backends[0].InFlight.Local = -1 }, "P9"},
		{"a request that is settled twice", func(t *tale) { t.Lines = append(t.Lines, t.Lines[3]) }, "P9"},
		{"a status that counts", func(t *tale) { t.Last[1].Status.Streams.InFlight = 2 }, "P9"},
		{"a sample below nothing", func(t *tale) { t.Samples[7].InFlight = -1 }, "P9"},

		{"goroutines that stay", func(t *tale) { t.Samples[len(t.Samples)-1].Routines = 900 }, "P10"},
		{"connections that are kept for the next request", func(t *tale) {
			for i := range 300 {
				t.turn(fmt.Sprint("many", i), "", "n3", "b1", 0, "no_key", 20+float64(i)/1000, 21)
			}
			t.Samples[len(t.Samples)-1].Files = 700
		}, ""},
		{"descriptors that stay", func(t *tale) { t.Samples[len(t.Samples)-1].Files = 900 }, "P10"},

		{"refused for nothing", func(t *tale) { refuse(t, "draining", 20, 20.1) }, "P11"},
		{"draining while a node restarts", func(t *tale) { refuse(t, "draining", 20, 20.1); t.fault(history.Restart, 19, 22, "n2") }, ""},
		{"no backend, and all are well", func(t *tale) { refuse(t, "no_backend", 20, 20.1) }, "P11"},
		{"saturated, and told late", func(t *tale) { refuse(t, "saturated", 20, 29) }, "P11"},
		{"goodput holds", func(t *tale) { t.fault(history.Traffic, 20, 40, "") }, ""},
		{"goodput falls under load", func(t *tale) {
			t.fault(history.Traffic, 20, 40, "")
			t.Turns = slices.DeleteFunc(t.Turns, func(x history.Turn) bool { return x.Began.After(at(30)) })
		}, "P11"},

		{"two clusters", func(t *tale) { t.Last[2].Status.Cluster.ID = "c2" }, "P12"},
		{"two leaders of a term", func(t *tale) {
			t.Leaders = append(t.Leaders, history.Leader{Shard: 1, Incarnation: 1, Term: 1, Node: "n3"})
		}, "leaders"},
		{"a shard without a leader", func(t *tale) { t.Last[2].Shards.Shards[0].Leader = "" }, "replicas"},
		{"a replica that is missing", func(t *tale) {
			for i := range t.Last {
				t.Last[i].Shards.Shards[0].Replicas = t.Last[i].Shards.Shards[0].Replicas[:2]
			}
		}, "replicas"},
		{"members that are seen unlike", func(t *tale) { t.Last[2].Members.Members[0].State = "dead" }, "views"},
		{"a verdict that differs by node", func(t *tale) {
			for i := range t.Samples {
				if s := &t.Samples[i]; s.Node == "n2" && s.At.After(at(20)) && s.At.Before(at(40)) {
					s.Unhealthy = []string{"b2"}
				}
			}
		}, "views"},
		{"a leader that says what was before", func(t *tale) {
			t.fault(history.Backend, 15, 22, "b1", "b1")
			t.moved("repin")
			t.read("s", "b2", 4, 25, 25.1)
			t.read("s", "b1", 3, 26, 26.1)
		}, "P1 linear"},
		{"a leader that knows no binding", func(t *tale) { t.read("s", "", 0, 9, 9.1) }, "linear"},
		{"a leader that knows no binding, late in a long run", func(t *tale) {
			for i := range 2 * stretch {
				t.read("s", "b1", 3, 9+float64(i)*0.05, 9.04+float64(i)*0.05)
			}
			t.read("s", "", 0, 48, 48.1)
		}, "linear"},
		{"late to recover", func(t *tale) { t.Recovered["leaders"] = 6 * time.Second }, "recover"},
		{"no recovery", func(t *tale) { delete(t.Recovered, "leaders") }, "recover"},

		{"a death that is felt for long", func(t *tale) {
			t.fault(history.Kill, 30.5, 36, "n1", "n1")
			t.turn("x", "", "n2", "b1", 0, "no_key", 31, 36)
			t.Served[len(t.Served)-1].Start = at(35)
		}, "kill"},
		{"replicas that drift apart", func(t *tale) {
			t.States = append(t.States, history.State{At: at(30), Node: "n2", Shard: 1, Incarnation: 1, Applied: 63, Digest: "bb"})
		}, "states"},
		{"a replica that says two things", func(t *tale) {
			t.States = append(t.States, history.State{At: at(30), Node: "n1", Shard: 1, Incarnation: 1, Applied: 63, Digest: "bb"})
		}, "states"},
		{"replicas of another incarnation", func(t *tale) {
			t.States = append(t.States, history.State{At: at(30), Node: "n2", Shard: 1, Incarnation: 2, Applied: 63, Digest: "bb"})
		}, ""},
		{"replicas of programs that count otherwise", func(t *tale) {
			t.States = append(t.States, history.State{At: at(30), Node: "n2", Shard: 1, Incarnation: 1, Applied: 63, Digest: "2-bb"})
		}, ""},
		{"replicas of programs that count alike", func(t *tale) {
			for i, node := range []string{"n1", "n2"} {
				t.States = append(t.States, history.State{At: at(30), Node: node, Shard: 1, Incarnation: 1, Applied: 63, Digest: fmt.Sprint("2-b", i)})
			}
		}, "states"},
		{"two majorities", func(t *tale) { t.votes(30, 40, 5, "n4", "n4 n5") }, "voters"},
		{"two leaders who share a voter", func(t *tale) { t.votes(30, 40, 5, "n2", "n2 n3 n4") }, ""},
		{"one majority after the other", func(t *tale) { t.Votings[0].To = at(29); t.votes(30, 40, 5, "n4", "n4 n5 n6") }, ""},
		{"too many voters", func(t *tale) { t.Votings[0].To = at(29); t.votes(30, 40, 5, "n2", "n1 n2 n3 n4 n5") }, "voters"},
		{"a voter that goes before another comes", func(t *tale) { t.votes(55, 56, 3, "n1", "n1 n2") }, "voters"},
		{"one that goes as another leads", func(t *tale) { t.votes(55, 56, 4, "n1", "n1 n2") }, ""},
		{"one that goes after another came", func(t *tale) {
			t.votes(55, 56, 3, "n1", "n1 n2 n3 n4")
			t.votes(56, 57, 3, "n1", "n1 n2 n4")
		}, ""},
		{"one of a node that was down", func(t *tale) {
			t.votes(55, 56, 3, "n1", "n1 n2")
			t.fault(history.Kill, 5, 40, "n3", "n3")
		}, ""},
		{"one of another node than was down", func(t *tale) {
			t.votes(55, 56, 3, "n1", "n1 n3")
			t.fault(history.Kill, 5, 40, "n3", "n3")
		}, "voters"},
		{"one on a machine that stood still", func(t *tale) {
			t.votes(55, 56, 3, "n1", "n1 n2")
			t.turn("x", "", "n1", "b1", 0, "no_key", 53, 54)
			t.Turns[len(t.Turns)-1].Due = at(51)
		}, ""},
		{"one long after it stood still", func(t *tale) {
			t.votes(55, 56, 3, "n1", "n1 n2")
			t.turn("x", "", "n1", "b1", 0, "no_key", 33, 34)
			t.Turns[len(t.Turns)-1].Due = at(31)
		}, "voters"},
		{"one as nodes leave for good", func(t *tale) {
			t.votes(55, 56, 3, "n1", "n1")
			t.fault(history.Leave, 35, 50, "n4")
		}, ""},
		{"a directory that two have", func(t *tale) { t.Twins = append(t.Twins, history.Twin{At: at(30), Node: "n1", Served: true}) }, "data"},
		{"a directory that is refused", func(t *tale) {
			t.Twins = append(t.Twins, history.Twin{At: at(30), Node: "n1", Words: "data directory /d: lock: another starling has it"})
		}, ""},
		{"a second process that ends for another reason", func(t *tale) {
			t.Twins = append(t.Twins, history.Twin{At: at(30), Node: "n1", Words: "bind: address in use"})
		}, "data"},
		{"a disk that fills", func(t *tale) { t.Samples[len(t.Samples)-1].Disk = 80 << 20 }, "P10"},

		{"another process becomes a node", func(t *tale) { t.fault(history.HandOver, 30, 31, "n1") }, ""},
		{"and the one before does not end", func(t *tale) {
			t.fault(history.HandOver, 30, 31, "n1")
			t.Last[0].Status.Elders = []api.Elder{{PID: 4711}}
		}, "upgrade"},
		{"and cuts a stream", func(t *tale) {
			breaks(t.turn("x", "", "n1", "b1", 0, "no_key", 30, 31))
			t.fault(history.HandOver, 30.5, 30.9, "n1")
		}, "P6"},
		{"and takes no connection", func(t *tale) {
			x := t.turn("x", "", "n1", "", 0, "", 30, 30.5)
			x.End, x.Whole, x.First = "unreachable", false, time.Time{}
			t.Lines, t.Served = t.Lines[:len(t.Lines)-1], t.Served[:len(t.Served)-1]
			t.fault(history.HandOver, 30, 31, "n1")
		}, "upgrade"},
		{"and another is down meanwhile", func(t *tale) {
			x := t.turn("x", "", "n1", "", 0, "", 30, 30.5)
			x.End, x.Whole, x.First = "unreachable", false, time.Time{}
			t.Lines, t.Served = t.Lines[:len(t.Lines)-1], t.Served[:len(t.Served)-1]
			t.fault(history.HandOver, 30, 31, "n1")
			t.fault(history.Kill, 29, 32, "n2", "n2")
		}, ""},
		{"and refuses", func(t *tale) { refuse(t, "draining", 20, 20.1); t.fault(history.HandOver, 19, 22, "n1") }, "upgrade"},
		{"and a session moves", func(t *tale) { t.fault(history.HandOver, 19, 22, "n1"); t.moved("hit") }, "upgrade"},

		{"a death that is felt shortly", func(t *tale) {
			t.fault(history.Kill, 30.5, 36, "n1", "n1")
			t.turn("x", "", "n2", "b1", 0, "no_key", 30.6, 36)
			t.Served[len(t.Served)-1].Start = at(31.2)
		}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			tale := peace()
			c.edit(tale)
			if got := strings.Join(broken(tale), " "); got != c.want {
				t.Errorf("breaks %q, want %q", got, c.want)
				for _, v := range Judge(tale.Run) {
					if !v.Held {
						t.Logf("%s: %s\n%s", v.Promise, v.Numbers, strings.Join(v.Story, "\n"))
					}
				}
			}
		})
	}
}

func refuse(t *tale, code string, from, to float64) {
	t.Turns = append(t.Turns, history.Turn{ID: "r", Kind: "sse", Node: "n1", Attempt: 1, Due: at(from), Began: at(from), Ended: at(to), Status: 503, End: "refused", Code: code})
	t.Lines = append(t.Lines, history.Line{Node: "n1", At: at(from), RequestID: "r", Status: 503, Code: code, Took: (to - from) * 1000, Reason: "shed"})
}

func breaks(x *history.Turn) { x.End, x.Whole, x.Note = "broken", false, "unexpected EOF" }

// untaken is a turn that broke and that neither a node nor a backend has on record.
func untaken(t *tale) {
	x := t.turn("x", "", "n1", "b1", 0, "no_key", 30, 31)
	breaks(x)
	x.First, x.Status, x.Backend = time.Time{}, 0, ""
	t.Lines, t.Served = t.Lines[:len(t.Lines)-1], t.Served[:len(t.Served)-1]
}

// leaves has a client leave, and its backend notice that so many seconds later.
func leaves(t *tale, late float64) {
	x := t.turn("x", "", "n1", "b1", 0, "no_key", 30, 31)
	x.End, x.Whole = "left", false
	t.Served[len(t.Served)-1].End = at(31 + late)
}

// TestStory: a breach is told by the faults and turns that belong to it, in order,
// and what it is at the end.
func TestStory(t *testing.T) {
	tale := peace()
	tale.fault(history.Partition, 3, 40, "n2")
	tale.turn("s3", "s", "n2", "b2", 3, "hit", 20, 21)
	for _, v := range Judge(tale.Run) {
		if v.Promise != "P1" {
			continue
		}
		want := []string{"+1.000s turn s1", "+3.000s fault begins: partition on n2: as told", "+5.000s turn s2", "+20.000s turn s3 (sse) by n2 at b2, epoch 3, hit: clean", "+20.050s session s at epoch 3: n2 says b2, n1 said b1"}
		for i, w := range want {
			if len(v.Story) != len(want) || !strings.Contains(v.Story[i], w) {
				t.Fatalf("line %d of\n%s\nwant %q in it", i, strings.Join(v.Story, "\n"), w)
			}
		}
	}
	if Held(Judge(tale.Run)) || !Held(Judge(peace().Run)) {
		t.Error("Held is wrong")
	}
}

// TestEach: counts read as words.
func TestEach(t *testing.T) {
	for want, n := range map[string]map[string]int{"none": {}, "draining 6": {"draining": 6}, "draining 6, saturated 2": {"saturated": 2, "draining": 6}} {
		if got := each(n); got != want {
			t.Errorf("%v is told as %q, want %q", n, got, want)
		}
	}
}

// TestNothingToLookAt: a verdict about what did not happen holds, and says that it is
// about nothing; one that has seen something does not say so.
func TestNothingToLookAt(t *testing.T) {
	for _, v := range Judge(&history.Run{}) {
		if !v.Held || !strings.HasPrefix(v.Numbers, "nothing to look at") {
			t.Errorf("%s of nothing: held %v, %q", v.Promise, v.Held, v.Numbers)
		}
	}
	for _, v := range Judge(peace().Run) {
		want := v.Promise == "P8" || v.Promise == Kill || v.Promise == Upgrade || v.Promise == Data
		if strings.HasPrefix(v.Numbers, "nothing to look at") != want {
			t.Errorf("%s of peace: %q", v.Promise, v.Numbers)
		}
	}
}
