package shards

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
)

// Op is what a command does. Numbers are on disk: none is given away twice.
type Op uint8

const (
	OpBind     Op = 1 // binds a session that is as the proposer has seen it: unbound, if that was so
	OpRebind   Op = 2 // the same, of a session that has a binding
	OpMove     Op = 3 // ends a hold: each session that still is as it was goes to its target
	OpDown     Op = 4 // a backend is dead or removed: each session that still is there goes to its target
	OpHolder   Op = 5 // a node may have leases of the shard from now on
	OpUnholder Op = 6 // it has none any more
	OpSet      Op = 7 // the backends of a pool
)

// Command is one decision, as it is in the log: the choice, never the question.
// Which fields it has depends on what it does.
type Command struct {
	Op Op

	Session Key    // bind, rebind
	Seen    Epoch  // bind, rebind: what the proposer knew; 0: no binding
	Backend string // bind, rebind: where to; down: which one went

	Term    uint64   // move: the hold's, which must be the entry's
	Targets []Target // move, down

	Pool     string    // down, set
	Revision uint64    // set: of the map; down: of the set from which the targets are
	Backends []Backend // set; none: the pool is no more

	Node string // holder, unholder
	Boot uint64 // holder, unholder: a node that starts again is another holder
}

// Target is where one of many sessions goes.
type Target struct {
	Session Key
	Seen    Epoch  // the binding that it leaves
	Backend string // "": nowhere, it is let go
}

// maxTargets of one command take 360 kB, a third of what a log takes.
const maxTargets = 16384

// What is in the log, integers big-endian, text with a length byte before it:
//
//	all:               version u8, op u8
//	bind, rebind:      session 16, seen u32, backend
//	move:              term u64, targets
//	down:              pool, revision u64, backend, targets
//	holder, unholder:  node, boot u64
//	set:               pool, revision u64, count u16, and of each by id: id, weight u32
//	targets:           count u16 of backends and each as it is first named, count u32 of
//	                   sessions and of each: session 16, seen u32, backend's number from 1 u16, 0: nowhere
//
// The same command is always the same bytes.
func (c Command) encode() []byte {
	b := make([]byte, 0, 40+len(c.Backend)+22*len(c.Targets))
	b = append(b, codeVersion, byte(c.Op))
	switch c.Op {
	case OpBind, OpRebind:
		b = append(b, c.Session[:]...)
		b = binary.BigEndian.AppendUint32(b, uint32(c.Seen))
		b = appendText(b, c.Backend)
	case OpMove:
		b = binary.BigEndian.AppendUint64(b, c.Term)
		b = appendTargets(b, c.Targets)
	case OpDown:
		b = appendText(b, c.Pool)
		b = binary.BigEndian.AppendUint64(b, c.Revision)
		b = appendText(b, c.Backend)
		b = appendTargets(b, c.Targets)
	case OpHolder, OpUnholder:
		b = appendText(b, c.Node)
		b = binary.BigEndian.AppendUint64(b, c.Boot)
	case OpSet:
		b = appendSet(b, Set{c.Pool, c.Revision, c.Backends})
	}
	return b
}

func appendTargets(b []byte, all []Target) []byte {
	var named []string
	numbers := map[string]uint16{"": 0}
	for _, t := range all {
		if _, ok := numbers[t.Backend]; !ok {
			named = append(named, t.Backend)
			numbers[t.Backend] = uint16(len(named))
		}
	}
	b = binary.BigEndian.AppendUint16(b, uint16(len(named)))
	for _, name := range named {
		b = appendText(b, name)
	}
	b = binary.BigEndian.AppendUint32(b, uint32(len(all)))
	for _, t := range all {
		b = append(b, t.Session[:]...)
		b = binary.BigEndian.AppendUint32(b, uint32(t.Seen))
		b = binary.BigEndian.AppendUint16(b, numbers[t.Backend])
	}
	return b
}

func appendSet(b []byte, s Set) []byte {
	b = appendText(b, s.Pool)
	b = binary.BigEndian.AppendUint64(b, s.Revision)
	b = binary.BigEndian.AppendUint16(b, uint16(len(s.Backends)))
	for _, one := range slices.SortedFunc(slices.Values(s.Backends), byID) {
		b = appendText(b, one.ID)
		b = binary.BigEndian.AppendUint32(b, one.Weight)
	}
	return b
}

func byID(a, b Backend) int { return strings.Compare(a.ID, b.ID) }

func decodeCommand(b []byte) (Command, error) {
	r := reader{rest: b}
	version := r.byte()
	c := Command{Op: Op(r.byte())}
	if version == codeVersion {
		if err := c.read(&r); err != nil {
			return Command{}, fmt.Errorf("command %w: op %d: %w", errCode, c.Op, err)
		}
	}
	if err := r.done("command", version); err != nil {
		return Command{}, err
	}
	return c, nil
}

func (c *Command) read(r *reader) (err error) {
	named := &c.Backend // what must not be empty
	switch c.Op {
	case OpBind, OpRebind:
		c.Session, c.Seen, c.Backend = r.key(), Epoch(r.uint32()), r.text()
		if c.Op == OpRebind && c.Seen == 0 {
			err = fmt.Errorf("from no binding")
		}
	case OpMove:
		named = nil
		c.Term = r.uint64()
		c.Targets, err = r.targets()
	case OpDown:
		c.Pool, c.Revision, c.Backend = r.text(), r.uint64(), r.text()
		c.Targets, err = r.targets()
	case OpHolder, OpUnholder:
		c.Node, c.Boot = r.text(), r.uint64()
		named = &c.Node
	case OpSet:
		var s Set
		s, err = r.set()
		c.Pool, c.Revision, c.Backends = s.Pool, s.Revision, s.Backends
		named = &c.Pool
	default:
		return fmt.Errorf("this program does not know it; was it written by a newer one?")
	}
	if err == nil && named != nil && *named == "" {
		err = fmt.Errorf("a name is empty")
	}
	return err
}

func (r *reader) targets() ([]Target, error) {
	named := []string{""}
	for range r.uint16() {
		name := r.text()
		if r.short || slices.Contains(named, name) {
			return nil, fmt.Errorf("backend %q is named twice, or not at all", name)
		}
		named = append(named, name)
	}
	n := r.uint32()
	if n > maxTargets {
		return nil, fmt.Errorf("%d targets, the limit is %d", n, maxTargets)
	}
	var all []Target
	used := 0
	for range n {
		t := Target{Session: r.key(), Seen: Epoch(r.uint32())}
		at := int(r.uint16())
		if at > used+1 || at >= len(named) || t.Seen == 0 {
			return nil, fmt.Errorf("session %v goes from epoch %d to backend %d of %d, after %d", t.Session, t.Seen, at, len(named)-1, used)
		}
		used = max(used, at)
		t.Backend = named[at]
		all = append(all, t)
	}
	if used != len(named)-1 {
		return nil, fmt.Errorf("%d backends are named, and %d used", len(named)-1, used)
	}
	return all, nil
}

func (r *reader) set() (Set, error) {
	s := Set{Pool: r.text(), Revision: r.uint64()}
	for range r.uint16() {
		b := Backend{ID: r.text(), Weight: r.uint32()}
		if n := len(s.Backends); b.ID == "" || n > 0 && s.Backends[n-1].ID >= b.ID {
			return Set{}, fmt.Errorf("backend %q of pool %q is out of order", b.ID, s.Pool)
		}
		s.Backends = append(s.Backends, b)
	}
	return s, nil
}
