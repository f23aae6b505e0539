package api

import "testing"

func TestEventsInWords(t *testing.T) {
	shard := 6
	for _, x := range []struct {
		e    Event
		want string
	}{
		{Event{Kind: StateEvent, Pool: "llm", Backend: "b1", From: "active", To: "draining", Reason: "an operator drains it"}, "b1 active -> draining: an operator drains it"},
		{Event{Kind: StateEvent, Pool: "llm", Backend: "b1", From: "draining", To: "draining", Reason: "drained in 0s"}, "b1 stays draining: drained in 0s"},
		{Event{Kind: StepEvent, Shard: &shard, To: "create", Reason: "n2: the cluster is founded"}, "shard 6 create: n2: the cluster is founded"},
		{Event{Kind: StepEvent, Shard: &shard, From: "create", Reason: "done; its replicas are on n2"}, "shard 6 create: done; its replicas are on n2"},
		{Event{Kind: LeaderEvent, Shard: &shard, To: "n2", Reason: "term 2"}, "shard 6 led by n2: term 2"},
		{Event{Kind: LeaderEvent, Shard: &shard, From: "n2", To: "n2", Reason: "term 3"}, "shard 6 led by n2: term 3"},
		{Event{Kind: LeaderEvent, Shard: &shard, From: "n2", To: "n3", Reason: "term 3"}, "shard 6 n2 -> n3: term 3"},
		{Event{Kind: LeaderEvent, Shard: &shard, From: "n2", Reason: "no leader is known since term 2"}, "shard 6 has lost its leader n2: no leader is known since term 2"},
		{Event{Kind: UpgradeEvent, Node: "n1", From: "0.1.0", To: "0.1.1", Reason: "process 7 took over"}, "n1 0.1.0 -> 0.1.1: process 7 took over"},
		{Event{Kind: UpgradeEvent, Node: "n1", From: "dev", To: "dev", Reason: "process 7 took over"}, "n1: process 7 took over"},
		{Event{Kind: UpgradeEvent, Node: "n1", Reason: "the upgrade failed"}, "n1: the upgrade failed"},
		{Event{Kind: OperatorEvent, Reason: "drain backend, backend b1"}, "drain backend, backend b1"},
		{Event{Kind: LostEvent, Lost: 3, Reason: "the reader was too slow"}, "3 missed: the reader was too slow"},
	} {
		if got := x.e.Text(); got != x.want {
			t.Errorf("%s: %q, want %q", x.e.Kind, got, x.want)
		}
	}
}
