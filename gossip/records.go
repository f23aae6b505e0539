package gossip

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/hashicorp/memberlist"
)

// Record is a small piece of knowledge that all nodes share, such as who leads
// a shard: a hint, never the truth itself. Of one kind and key the highest
// revision counts; of equal ones, so that all agree, the greater value.
type Record struct {
	Kind     RecordKind
	Key      string
	Revision uint64
	Value    []byte
}

// RecordKind says what a record is about.
type RecordKind byte

// The kinds of records; the list is closed.
const (
	ShardMap   RecordKind = 1 // which nodes replicate a shard; the key is the shard's
	LeaderHint RecordKind = 2 // who leads a shard; the key is the shard's
	Decision   RecordKind = 3 // of an operator, until meta commits such
)

const (
	maxKey     = 63
	maxValue   = 900  // bytes: with its envelope it fits a packet beside others
	maxRecords = 4096 // that a node keeps
)

var (
	errRecord = errors.New("record is malformed")

	// ErrRecordSize says that a record does not fit a packet: it would stay in
	// the queue for ever.
	ErrRecordSize = fmt.Errorf("record is too large: keys have up to %d bytes, values up to %d", maxKey, maxValue)
	// ErrRecords says that there are as many records as a node keeps.
	ErrRecords = fmt.Errorf("there are %d records already", maxRecords)
)

// records is what is known, and what has to be passed on.
type records struct {
	queue memberlist.TransmitLimitedQueue

	mu    sync.Mutex
	known map[recordName]marked
}

// marked is a record and the mark of the cluster that it is of: a node that
// belongs to none yet hears those of several.
type marked struct {
	Record
	cluster uint64
}

type recordName struct {
	kind RecordKind
	key  string
}

// beats orders records of one name.
func (r Record) beats(other Record) bool {
	return r.Revision > other.Revision || r.Revision == other.Revision && bytes.Compare(r.Value, other.Value) > 0
}

// encode writes the record behind the mark of its cluster.
func (r marked) encode() []byte {
	b := appendMark([]byte{1, byte(r.Kind)}, r.cluster)
	b = binary.AppendUvarint(b, r.Revision)
	b = append(append(b, byte(len(r.Key))), r.Key...)
	return append(b, r.Value...)
}

// clusterMark is 0 for none: such a record is anybody's.
func clusterMark(id string) uint64 {
	if id == "" {
		return 0
	}
	return markOf(id)
}

func decodeRecord(b []byte) (r marked, err error) {
	in := &reader{b: b}
	version := in.byte()
	r.Kind, r.cluster = RecordKind(in.byte()), in.mark()
	r.Revision = in.uvarint(1<<64 - 1)
	key, value, err := cutText(in.b, maxKey)
	if in.bad || err != nil || version != 1 || r.Kind < ShardMap || r.Kind > Decision || len(value) > maxValue {
		return marked{}, errRecord
	}
	r.Key, r.Value = string(key), bytes.Clone(value)
	return r, nil
}

// Publish tells all nodes a record. An older one than is known changes nothing.
func (c *Cluster) Publish(r Record) error {
	if len(r.Key) > maxKey || len(r.Value) > maxValue {
		return fmt.Errorf("record %d %q: %w", r.Kind, r.Key, ErrRecordSize)
	}
	r.Value = bytes.Clone(r.Value)
	_, err := c.record(marked{r, clusterMark(c.members.clusterID())})
	return err
}

// Record is what is known under a name.
func (c *Cluster) Record(kind RecordKind, key string) (r Record, ok bool) {
	c.records.mu.Lock()
	defer c.records.mu.Unlock()
	known, ok := c.records.known[recordName{kind, key}]
	return known.Record, ok
}

// learn takes a record from the wire in, and passes it on if it is news.
func (c *Cluster) learn(b []byte) error {
	r, err := decodeRecord(b)
	if err != nil {
		return refuse(causeBroken, "%v", err)
	}
	if ours := clusterMark(c.members.clusterID()); ours != 0 {
		if r.cluster != 0 && r.cluster != ours {
			return refuse(causeCluster, "a record of it")
		}
		r.cluster = ours
	}
	news, err := c.record(r)
	if news {
		wake(c.learned)
	}
	return err
}

func (c *Cluster) record(r marked) (news bool, err error) {
	s := &c.records
	s.mu.Lock()
	name := recordName{r.Kind, r.Key}
	old, ok := s.known[name]
	switch {
	case ok && !r.beats(old.Record):
		s.mu.Unlock()
		return false, nil
	case !ok && len(s.known) >= maxRecords:
		s.mu.Unlock()
		return false, ErrRecords
	}
	s.known[name] = r
	s.mu.Unlock()
	s.queue.QueueBroadcast(broadcast{name, r.encode()})
	return true, nil
}

// all is every record as it goes over the wire.
func (s *records) all() [][]byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out [][]byte
	for _, r := range slices.SortedFunc(maps.Values(s.known), func(a, b marked) int { return strings.Compare(a.Key, b.Key) }) {
		out = append(out, r.encode())
	}
	return out
}

// adopt makes the records that are nobody's those of our cluster, once it is
// known, and forgets the others'.
func (s *records) adopt(cluster string) {
	ours := clusterMark(cluster)
	if ours == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, r := range s.known {
		switch r.cluster {
		case ours:
		case 0:
			r.cluster = ours
			s.known[name] = r
		default:
			delete(s.known, name)
		}
	}
}

// broadcast is a record in the queue; a newer one of its name takes its place.
type broadcast struct {
	name recordName
	msg  []byte
}

var _ memberlist.NamedBroadcast = broadcast{}

// Name implements memberlist.NamedBroadcast.
func (b broadcast) Name() string { return fmt.Sprint(b.name.kind, " ", b.name.key) }

// Invalidates implements memberlist.Broadcast.
func (b broadcast) Invalidates(other memberlist.Broadcast) bool {
	o, ok := other.(broadcast)
	return ok && o.name == b.name
}

// Message implements memberlist.Broadcast.
func (b broadcast) Message() []byte { return b.msg }

// Finished implements memberlist.Broadcast.
func (b broadcast) Finished() {}
