package main

import (
	"strings"
	"testing"

	"github.com/starling-lb/starling/node/api"
)

// TestShowShards: nodes of one name are told apart, replicas on nodes that are not well
// are marked, and a step says what it waits for.
func TestShowShards(t *testing.T) {
	replica := func(node, id string, role api.ReplicaRole, lag uint64) api.Replica {
		return api.Replica{Node: node, ID: id, Role: role, Lag: lag, State: "alive"}
	}
	l := api.ShardList{Shards: []api.Shard{
		{ID: 0, Incarnation: 1, Leader: "lb", LeaderID: "0123456789", Term: 2, Applied: 7, LastIndex: 7, Replicas: []api.Replica{
			replica("lb", "0123456789", api.LeaderRole, 0), replica("lb", "9876543210", api.VoterRole, 0), replica("lc", "77777777", api.NonvoterRole, 4),
		}},
		{ID: 1, Incarnation: 2, Replicas: []api.Replica{replica("lc", "77777777", api.VoterRole, 0)}, Step: &api.ShardStep{
			Kind: "move", Node: "lb", NodeID: "9876543210", Reason: "node lb is draining", Age: 130, Waits: "nobody leads the shard", Still: true,
		}},
	}}
	l.Shards[0].Replicas[1].State = "dead"
	var out strings.Builder
	showShards(&out, l)
	want := []string{
		"SHARD\tLEADER\tTERM\tAPPLIED\tSESSIONS\tREPLICAS\tSTEP",
		"0 (meta)\tlb/01234567\t2\t7 of 7\t0\tlb/01234567 lb/98765432 (dead) lc (nonvoter, lacks 4)\t-",
		"1 #2\t-\t0\t0 of 0\t0\tlc\tmove lb/98765432: node lb is draining; for 2m10s, stands still, waits: nobody leads the shard",
	}
	if got := strings.TrimSpace(out.String()); got != strings.Join(want, "\n") {
		t.Errorf("it shows\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
}

// TestShowStatus: what is not as it should be is said, and nothing else.
func TestShowStatus(t *testing.T) {
	var out strings.Builder
	showStatus(&out, api.Status{Node: api.Node{Name: "n1", State: "draining", Agreed: api.LeavingNode}, Cluster: api.Cluster{
		Waits: "sees 2 of the 3 nodes", Paused: "many look dead", ConfigHashes: 2,
	}, ConfigHash: "abc", NotReady: "node is draining", Faults: []string{"its disk has failed"}})
	for _, want := range []string{
		"state\tdraining (leaving); ", "not ready\tnode is draining\n", "cluster\tnone yet: sees 2 of the 3 nodes\n", "repairs\trest: many look dead\n",
		"config\tabc; the nodes that are alive have 2 different ones\n", "fault\tits disk has failed\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it shows\n%s\nwithout %q", out.String(), want)
		}
	}
	out.Reset()
	showStatus(&out, api.Status{Node: api.Node{Name: "n1", State: "alive", Agreed: api.ActiveNode}, Cluster: api.Cluster{ID: "c", MetaQuorum: true, ConfigHashes: 1}})
	for _, not := range []string{"not ready", "repairs", "fault", "different", "(active)"} {
		if strings.Contains(out.String(), not) {
			t.Errorf("all is well, and it shows %q:\n%s", not, out.String())
		}
	}
}
