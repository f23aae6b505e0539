package judge

import (
	"cmp"
	"slices"
	"time"

	"github.com/starling-lb/starling/testcluster/chaos/history"
)

// What a node may have at the end beyond half as much again as at first.
const (
	more        = 100 // goroutines, and descriptors
	moreMemory  = 256 << 20
	moreDisk    = 64 << 20 // logs are cut after ten thousand entries, and the file keeps the room
	leftByATurn = 2        // of each: the client's connection is kept for the next request, and the backend's
)

// bounded is P10: of each node, what it had before the traffic against what it
// had left at the end. Nodes that share a process with all others are looked at as
// one.
func bounded(t *trial, f *finding) {
	first, last := map[string]history.Sample{}, map[string]history.Sample{}
	for _, s := range t.Samples {
		if !s.Up || s.Routines == 0 {
			continue
		}
		if _, seen := first[s.Node]; !seen {
			first[s.Node] = s
		}
		last[s.Node] = s
	}
	var most history.Sample
	for node, b := range last {
		a, beyond := first[node], more+leftByATurn*t.peak(node)
		if t.Level == "inside" {
			beyond = (t.Nodes+t.Backends)*more + 2*leftByATurn*t.peak("") // of clients and backends, too
		}
		most.Routines, most.Files = max(most.Routines, b.Routines), max(most.Files, b.Files)
		most.Memory, most.Disk = max(most.Memory, b.Memory), max(most.Disk, b.Disk)
		if b.Routines > a.Routines*3/2+beyond {
			f.breach(where{at: b.At, node: node}, "%s has %d goroutines, and had %d at first", node, b.Routines, a.Routines)
		}
		if b.Files > a.Files*3/2+beyond {
			f.breach(where{at: b.At, node: node}, "%s has %d descriptors, and had %d at first", node, b.Files, a.Files)
		}
		if b.Memory > a.Memory*2+moreMemory {
			f.breach(where{at: b.At, node: node}, "%s has %d MiB, and had %d at first", node, b.Memory>>20, a.Memory>>20)
		}
		if b.Disk > a.Disk*2+moreDisk {
			f.breach(where{at: b.At, node: node}, "%s has %d MiB in its data directory, and had %d at first", node, b.Disk>>20, a.Disk>>20)
		}
	}
	f.looked(len(last))
	f.number("at the end up to %d goroutines, %d descriptors, %d MiB, and %.1f MiB of disk", most.Routines, most.Files, most.Memory>>20, float64(most.Disk)/(1<<20))
}

// peak is how many turns there were at once, of a node or, where it has no name, of
// all.
func (t *trial) peak(node string) (most int) {
	type edge struct {
		at   time.Time
		open int
	}
	var edges []edge
	for i := range t.Turns {
		if turn := &t.Turns[i]; node == "" || turn.Node == node {
			edges = append(edges, edge{turn.Began, 1}, edge{turn.Ended, -1})
		}
	}
	slices.SortFunc(edges, func(a, b edge) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.open, b.open)) })
	open := 0
	for _, e := range edges {
		open += e.open
		most = max(most, open)
	}
	return most
}
