package consensus

import (
	"errors"
	"fmt"

	"github.com/hashicorp/raft"

	"github.com/starling-lb/starling/consensus/store"
	"github.com/starling-lb/starling/consensus/transport"
)

// A shard that lost its majority for good is made anew, in another incarnation,
// from what a survivor has. All entries count, also those that may never have been
// committed: nobody is left who could say so.

// Seed is a replica of an earlier incarnation, closed, whose data is still here.
type Seed struct {
	Incarnation uint32
	Life        uint64
}

// plant has a group that is made here begin with a snapshot of the first seed that
// has anything, and of nothing where it is made anew and none has. It does nothing
// to a replica that has begun. The life's own machine is what reads it: Raft
// restores it from the snapshot, all of it, a moment later.
func (l *life) plant() error {
	g := l.g
	if len(g.founders) == 0 || len(g.seeds) == 0 && g.remake == nil || g.o.Dir == "" {
		return nil
	}
	used, err := raft.HasExistingState(l.logs, l.logs, g.snaps)
	if err != nil || used {
		return err
	}
	for _, s := range g.seeds {
		key := store.Key{Shard: g.key.Shard, Incarnation: uint64(s.Incarnation), Life: s.Life}
		found, err := g.salvage(key, l.fsm.StateMachine)
		if err != nil {
			return fmt.Errorf("begin with what incarnation %d left: %w", s.Incarnation, err)
		}
		if found {
			g.log.Info("a group begins with what is left of an earlier incarnation", "incarnation", s.Incarnation)
			return l.sow()
		}
	}
	if g.remake == nil {
		return nil
	}
	g.log.Warn("a group is made anew, and nothing is left here of the one before")
	return l.sow()
}

// salvage reads a closed replica's last snapshot and all of its log into a machine.
func (g *Group) salvage(key store.Key, into StateMachine) (found bool, err error) {
	logs, err := g.o.Store.Open(key)
	if err != nil {
		return false, err
	}
	defer logs.Close()
	snaps, err := raft.NewFileSnapshotStoreWithLogger(snapshotsOf(g.o.Dir, key), 2, g.hlog.Named("snapshots"))
	if err != nil {
		return false, err
	}
	return readAll(logs, snaps, into)
}

// recall reads what an earlier run of this replica has left, before Raft does, who
// applies nothing again until there is a leader.
func (l *life) recall() {
	g := l.g
	if g.memory == nil {
		return
	}
	if _, err := readAll(l.logs, g.snaps, g.memory); err != nil {
		g.log.Warn("what the replica knew last is not all known again before there is a leader", "err", err)
	}
	g.memory = nil // the next life has the leader's word
}

// readAll reads the last snapshot and all of the log, committed or not.
func readAll(logs Logs, snaps raft.SnapshotStore, into StateMachine) (found bool, err error) {
	from, err := restoreLast(snaps, into)
	if err != nil {
		return false, err
	}
	first, err := logs.FirstIndex()
	last, err2 := logs.LastIndex()
	if err := errors.Join(err, err2); err != nil {
		return false, err
	}
	for i := max(first, from+1); i <= last && last > 0; i++ {
		if err := replay(logs, i, into); err != nil {
			return false, err
		}
	}
	return from > 0 || last > 0, nil
}

func restoreLast(snaps raft.SnapshotStore, into StateMachine) (index uint64, err error) {
	list, err := snaps.List()
	if err != nil || len(list) == 0 {
		return 0, err
	}
	meta, r, err := snaps.Open(list[0].ID)
	if err != nil {
		return 0, err
	}
	return meta.Index, errors.Join(into.Restore(r), r.Close())
}

func replay(logs Logs, index uint64, into StateMachine) error {
	var entry raft.Log
	if err := logs.GetLog(index, &entry); err != nil || entry.Type != raft.LogCommand {
		return err
	}
	commands, err := decodeEntry(entry.Data)
	if err == nil && len(commands) > 0 {
		_, err = into.Apply(entry.Term, entry.Index, commands)
	}
	return err
}

// sow writes the machine's state as the snapshot of a group with this one member.
func (l *life) sow() error {
	g := l.g
	if g.remake != nil {
		g.remake()
	}
	w, err := l.fsm.StateMachine.Snapshot()
	if err != nil {
		return err
	}
	alone := raft.Configuration{Servers: []raft.Server{{ID: raft.ServerID(g.name), Address: raft.ServerAddress(g.name)}}}
	sink, err := g.snaps.Create(raft.SnapshotVersionMax, 1, 1, alone, 1, l.wire)
	if err != nil {
		return err
	}
	if _, err := w.WriteTo(sink); err != nil {
		return errors.Join(err, sink.Cancel())
	}
	return sink.Close()
}

// Kept is the last entry that a replica has on disk, open or not: its index and its
// term; 0 where there is none.
func (gs *Groups) Kept(id transport.GroupID, life uint64) (last, term uint64, err error) {
	key := keyOf(id, life)
	if g := gs.Group(id.Shard); g != nil && g.key == key {
		if l := g.current(); l != nil {
			return tail(l.logs, g.snaps)
		}
	}
	logs, err := gs.o.Store.Open(key)
	if err != nil {
		return 0, 0, err
	}
	defer logs.Close()
	snaps, err := raft.NewFileSnapshotStoreWithLogger(snapshotsOf(gs.o.Dir, key), 2, gs.log.Named("snapshots"))
	if err != nil {
		return 0, 0, err
	}
	return tail(logs, snaps)
}

func tail(logs Logs, snaps raft.SnapshotStore) (last, term uint64, err error) {
	list, err := snaps.List()
	if err == nil && len(list) > 0 {
		last, term = list[0].Index, list[0].Term
	}
	at, err2 := logs.LastIndex()
	if err := errors.Join(err, err2); err != nil || at <= last {
		return last, term, err
	}
	var entry raft.Log
	err = logs.GetLog(at, &entry)
	return at, entry.Term, err
}
