package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/hashicorp/raft"
)

const (
	indexBits = 48
	reserved  = uint64(1) << (indexBits - 1) // indexes from here up are ours, not raft's
	maxSlot   = 1<<16 - 1
)

// What is kept beside the log. On disk: never renumber.
const (
	keepName = iota // whose slot it is; the last to go
	keepTerm
	keepVoteTerm
	keepVote
	keepCommit
	keeps
)

const (
	formatSlot, formatIndex = 0, 1 // slot 0 belongs to nobody
	format                  = "starling store 1"
	sumBytes                = 4
)

// Key names a replica for all its life. A replica that was removed and comes
// back has another Life, so that it cannot meet its own past.
type Key struct {
	Shard       uint64
	Incarnation uint64
	Life        uint64
}

func (k Key) String() string { return fmt.Sprintf("%d/%d/%d", k.Shard, k.Incarnation, k.Life) }

var (
	errDamaged  = errors.New("entry is damaged: its checksum differs")
	errNotFound = errors.New("not found") // raft compares the text
)

func place(slot uint16, index uint64) uint64 { return uint64(slot)<<indexBits | index }

func parts(at uint64) (slot uint16, index uint64) {
	return uint16(at >> indexBits), at & (1<<indexBits - 1)
}

// seal returns the entry as the file has it: at its place, its data followed by
// a checksum over all that matters. It is a copy, because raft hands the same
// entry to the replication of other nodes.
func seal(slot uint16, entry *raft.Log) *raft.Log {
	c := *entry
	c.Index = place(slot, entry.Index)
	c.Data = make([]byte, len(entry.Data), len(entry.Data)+sumBytes)
	copy(c.Data, entry.Data)
	c.Data = binary.BigEndian.AppendUint32(c.Data, sum(&c, c.Data))
	return &c
}

// unseal checks an entry read from place at and gives it raft's index.
func unseal(at uint64, entry *raft.Log) error {
	n := len(entry.Data) - sumBytes
	if n < 0 || entry.Index != at {
		return errDamaged
	}
	data := entry.Data[:n:n]
	if binary.BigEndian.Uint32(entry.Data[n:]) != sum(entry, data) {
		return errDamaged
	}
	entry.Data = data
	_, entry.Index = parts(at)
	return nil
}

func sum(entry *raft.Log, data []byte) uint32 {
	head := binary.BigEndian.AppendUint64(nil, entry.Index)
	head = binary.BigEndian.AppendUint64(head, entry.Term)
	head = binary.BigEndian.AppendUint64(append(head, byte(entry.Type)), uint64(len(data)))
	table := crc32.MakeTable(crc32.Castagnoli)
	s := crc32.Update(crc32.Checksum(head, table), table, data)
	return crc32.Update(s, table, entry.Extensions)
}

// keep makes the entry that holds one of the values beside the log.
func keep(slot uint16, what int, value []byte) *raft.Log {
	return seal(slot, &raft.Log{Index: reserved + uint64(what), Data: value})
}

// keepOf translates raft's names. Another name is another raft: refused, so
// that it cannot be forgotten silently.
func keepOf(name []byte) (int, error) {
	switch string(name) {
	case "CurrentTerm":
		return keepTerm, nil
	case "LastVoteTerm":
		return keepVoteTerm, nil
	case "LastVoteCand":
		return keepVote, nil
	}
	return 0, fmt.Errorf("store has no place for raft's value %q: teach keepOf", name)
}

// The name entry: the key, and whether the slot's data is on its way out.
func encodeName(k Key, leaving bool) []byte {
	b := binary.BigEndian.AppendUint64(nil, k.Shard)
	b = binary.BigEndian.AppendUint64(b, k.Incarnation)
	b = binary.BigEndian.AppendUint64(b, k.Life)
	if leaving {
		return append(b, 1)
	}
	return append(b, 0)
}

func decodeName(b []byte) (k Key, leaving bool, err error) {
	if len(b) != 25 || b[24] > 1 {
		return k, false, fmt.Errorf("name of a slot: %d bytes that this program does not know", len(b))
	}
	k.Shard, k.Incarnation, k.Life = binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:]), binary.BigEndian.Uint64(b[16:])
	return k, b[24] == 1, nil
}
