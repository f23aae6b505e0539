package shards

import "hash/fnv"

// Replicas that have applied the same entries have the same table. What a table comes
// to in one number lets that be seen from outside, while they run.

// Mark is what the table came to after all entries before an index that is a multiple
// of markEvery, so that replicas can be compared that are not at the same entry now.
type Mark struct {
	Index  uint64
	Digest uint64
}

const (
	markEvery = 64 // entries
	maxMarks  = 16
)

// DigestForm is how a digest is made: by head, weight and mix as they are. It is another
// one once any of them is, for tables that are alike have unlike digests then.
const DigestForm = 1

// Digest is a number that two tables have in common only if they are alike, but for an
// accident. It is no defence against who wants one.
func (t *Table) Digest() uint64 {
	h := fnv.New64a()
	_, _ = h.Write(t.head()) // never fails
	return h.Sum64() ^ mix(t.sum)
}

// weight is what a session adds to the sum, in whatever order they come.
func weight(k *Key, s spot) uint64 {
	return mix(place(k) ^ (uint64(s.backend)<<32|uint64(s.epoch))*0x9e3779b97f4a7c15)
}

func mix(x uint64) uint64 {
	x = (x ^ x>>31) * 0xd6e8feb86659fd93
	return x ^ x>>29
}

// mark notes what the table comes to before an entry is applied that is the first at a
// mark or behind it; mu is held. Where a machine was restored to is not known before
// its first entry, so from there on it has marks.
func (m *Machine) mark(next uint64) {
	if m.at.Index == 0 || m.at.Index/markEvery == next/markEvery {
		return
	}
	if len(m.marks) == maxMarks {
		m.marks = append(m.marks[:0], m.marks[1:]...)
	}
	m.marks = append(m.marks, Mark{next / markEvery * markEvery, m.table.Digest()})
}

// Digests are the last marks, and what the table comes to now; its index is that of
// the last entry, 0 where that is not known.
func (m *Machine) Digests() (now Mark, marks []Mark) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return Mark{m.at.Index, m.table.Digest()}, append([]Mark(nil), m.marks...)
}
