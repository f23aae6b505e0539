package judge

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/starling-lb/starling/testcluster/chaos/history"
)

// counts is P9: at the end nothing runs, so nothing is counted; and each request
// was settled once.
func counts(t *trial, f *finding) {
	for _, d := range t.Last {
		if s := d.Status.Streams; s.InFlight != 0 || s.Waiting != 0 {
			f.breach(where{}, "%s counts %d streams and %d that wait, and none runs", d.Node, s.InFlight, s.Waiting)
		}
		for _, b := range d.Backends.Backends {
			if n := b.InFlight; n.Local != 0 || n.Cluster != 0 || n.Waiting != 0 {
				f.breach(where{}, "%s counts %d streams of its own, %d of all and %d that wait at %s, and none runs", d.Node, n.Local, n.Cluster, n.Waiting, b.ID)
			}
		}
		for name, v := range series(families(d)["starling_streams_in_flight"]) {
			if v != 0 {
				f.breach(where{}, "%s exposes starling_streams_in_flight %g of %s, and none runs", d.Node, v, name)
			}
		}
	}
	for _, s := range t.Samples {
		if s.InFlight < 0 || s.Waiting < 0 {
			f.breach(where{at: s.At, node: s.Node}, "%s counts %d streams and %d that wait", s.Node, s.InFlight, s.Waiting)
		}
	}
	settled := map[string]int{}
	for _, l := range t.Lines {
		key := l.Node + " " + l.RequestID
		if settled[key]++; settled[key] == 2 && t.turns[l.RequestID] != nil {
			f.breach(where{at: l.At, turns: []string{l.RequestID}}, "%s settled request %s twice", l.Node, l.RequestID)
		}
	}
	f.looked(len(t.Last))
	f.number("%d nodes at rest, %d requests settled", len(t.Last), len(settled))
}

// closed is P12, so far as loopback lets it be seen: all nodes are of one cluster.
func closed(t *trial, f *finding) {
	id, whose := "", ""
	for _, d := range append(slices.Clone(t.First), t.Last...) {
		now := d.Status.Cluster.ID
		if id != "" && now != "" && now != id {
			f.breach(where{at: d.At, node: d.Node}, "%s is of cluster %s, and %s of cluster %s", d.Node, now, whose, id)
		}
		if now != "" {
			id, whose = now, d.Node
		}
	}
	f.looked(len(id))
	f.number("cluster %.8s", id)
}

// reigns looks for two leaders of one term.
func reigns(t *trial, f *finding) {
	type reign struct {
		shard       int
		incarnation uint32
		term        uint64
	}
	who := map[reign]string{}
	for _, l := range t.Leaders {
		r := reign{l.Shard, l.Incarnation, l.Term}
		if was := who[r]; was != "" && was != l.Node {
			f.breach(where{}, "shard %d, incarnation %d: %s and %s lead in term %d", l.Shard, l.Incarnation, was, l.Node, l.Term)
		}
		who[r] = l.Node
	}
	f.looked(len(who))
	f.number("%d reigns", len(who))
}

// replicas looks at the shards at the end: all nodes tell the same of each, its
// voters are as many as the nodes allow, and nobody lags.
func replicas(t *trial, f *finding) {
	told := map[int]string{}
	shards, last := 0, t.Last
	if len(last) == 0 {
		last = t.First // of a run that had no cluster to begin with
	}
	for _, d := range last {
		want := min(3, len(last))
		if len(last) == 2 {
			want = 1
		}
		for _, s := range d.Shards.Shards {
			voters := 0
			var names []string
			for _, r := range s.Replicas {
				if r.Role == "leader" || r.Role == "voter" {
					voters++
				}
				names = append(names, r.Node)
			}
			slices.Sort(names)
			as := fmt.Sprintf("incarnation %d, on %s", s.Incarnation, strings.Join(names, " ")) // its leader may change from one dump to the next
			switch was := told[s.ID]; {
			case s.Leader == "":
				f.breach(where{at: d.At}, "at the end nobody leads shard %d, says %s", s.ID, d.Node)
			case voters < want || voters > 4:
				f.breach(where{at: d.At}, "at the end shard %d has %d voters, want %d: %s", s.ID, voters, want, as)
			case was != "" && was != as:
				f.breach(where{at: d.At}, "at the end shard %d: %s says %s, another %s", s.ID, d.Node, as, was)
			case was == "":
				shards++
			}
			told[s.ID] = as
		}
	}
	f.looked(shards)
	f.number("%d shards at %d nodes", shards, len(last))
}

// apart is for how long two nodes' verdicts may differ: a report's way, three
// probes and the look of the harness.
const apart = 10 * time.Second

// views is about what all nodes should see alike: members and backends at the end,
// and while no fault stands between the nodes, which backends are sick.
func views(t *trial, f *finding) {
	told := ""
	for _, d := range t.Last {
		var names []string
		for _, m := range d.Members.Members {
			if m.State == "alive" || m.State == "suspect" || m.State == "draining" { // who is suspected is there until it is told otherwise
				names = append(names, m.Name)
			}
		}
		slices.Sort(names)
		as := strings.Join(names, " ")
		if told != "" && as != told {
			f.breach(where{at: d.At}, "at the end %s sees alive: %s; another %s", d.Node, as, told)
		}
		told = as
	}
	f.looked(len(t.Last))
	f.number("members at the end: %s; sick backends differed for %.1fs at most", told, disagree(t, f).Seconds())
}

// disagree is for how long without a break two nodes' lists of sick backends
// differed.
func disagree(t *trial, f *finding) (longest time.Duration) {
	samples := slices.Clone(t.Samples)
	slices.SortStableFunc(samples, func(a, b history.Sample) int { return a.At.Compare(b.At) })
	now := map[string]history.Sample{}
	var since time.Time
	for _, s := range samples {
		if s.Up {
			now[s.Node] = s
		}
		maps.DeleteFunc(now, func(_ string, old history.Sample) bool { return s.At.Sub(old.At) > 3*time.Second })
		differ := unlike(now)
		between := func(h history.Fault) bool { return h.Kind != history.Backend && h.Kind != history.Traffic }
		switch {
		case differ == "" || t.any(s.At.Add(-apart), s.At, between):
			since = time.Time{}
		case since.IsZero():
			since = s.At
		default:
			d := s.At.Sub(since)
			if longest = max(longest, d); d > apart {
				f.breach(where{at: s.At}, "for %.1fs nodes do not agree which backends are sick: %s", d.Seconds(), differ)
				since = s.At
			}
		}
	}
	return longest
}

// unlike says in words how the lists of sick backends differ; "" where they do not.
func unlike(now map[string]history.Sample) string {
	lists := map[string][]string{}
	for _, node := range slices.Sorted(maps.Keys(now)) {
		sick := slices.Sorted(slices.Values(now[node].Unhealthy))
		key := strings.Join(sick, " ")
		lists[key] = append(lists[key], node)
	}
	if len(lists) < 2 {
		return ""
	}
	var words []string
	for _, key := range slices.Sorted(maps.Keys(lists)) {
		words = append(words, fmt.Sprintf("%s: %s", strings.Join(lists[key], " "), cmp.Or(key, "none")))
	}
	return strings.Join(words, "; ")
}

// recovered is about how long it took until all was well again.
func recovered(t *trial, f *finding) {
	f.looked(len(t.Wanted))
	for _, what := range slices.Sorted(maps.Keys(t.Wanted)) {
		took, came := t.Recovered[what]
		switch {
		case !came:
			f.breach(where{at: t.Ended}, "%s: not as they should be within %v of the last fault", what, t.Wanted[what])
		case took > t.Wanted[what]:
			f.breach(where{at: t.Healed.Add(took)}, "%s: as they should be %v after the last fault, %v allowed", what, took, t.Wanted[what])
		default:
			f.number("%s after %.1fs", what, took.Seconds())
		}
	}
}
