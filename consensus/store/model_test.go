package store

import (
	"bytes"
	"flag"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/hashicorp/raft"
	"pgregory.net/rapid"
)

// model is what a replica's slot should hold.
type model struct {
	log    []*raft.Log
	values map[string][]byte
	commit uint64
	staged uint64
}

func (m *model) first() uint64 {
	if len(m.log) == 0 {
		return 0
	}
	return m.log[0].Index
}

func (m *model) last() uint64 { return m.first() + uint64(max(len(m.log), 1)) - 1 }

// wrote is called with each write: the staged commit index goes along.
func (m *model) wrote() { m.commit = max(m.commit, m.staged) }

// machine drives a store and its models with the same calls.
type machine struct {
	t      *testing.T
	path   string
	st     *Store
	slots  map[Key]*Slot
	models map[Key]*model
}

// TestModel makes fewer runs than rapid's default, unless asked for more.
func TestModel(t *testing.T) {
	if f := flag.Lookup("rapid.checks"); f.Value.String() == f.DefValue {
		must(t, f.Value.Set("20"))
	}
	rapid.Check(t, func(rt *rapid.T) {
		m := &machine{t: t, path: filepath.Join(ramDir(t), "raft.db"), slots: map[Key]*Slot{}, models: map[Key]*model{}}
		m.start()
		defer func() { stop(t, m.st) }()
		rt.Repeat(map[string]func(*rapid.T){
			"append":  m.appendAll,
			"cut":     m.cut,
			"overlap": m.overlap,
			"set":     m.set,
			"stage":   m.stage,
			"reopen":  func(*rapid.T) { m.reopen() },
			"drop":    m.drop,
			"create":  m.create,
			"":        m.check,
		})
		m.reopen()
		m.check(rt)
	})
}

func (m *machine) start() {
	var err error
	m.st, err = New(Options{Path: m.path})
	must(m.t, err)
	must(m.t, m.st.Start(m.t.Context()))
	for k := range m.models {
		m.slots[k] = open(m.t, m.st, k)
	}
	if len(m.models) == 0 {
		m.add(key(0))
		m.add(key(1))
	}
}

func (m *machine) add(k Key) {
	m.slots[k], m.models[k] = open(m.t, m.st, k), &model{values: map[string][]byte{}}
}

func (m *machine) pick(rt *rapid.T) (*Slot, *model) {
	keys := slices.SortedFunc(maps.Keys(m.models), func(a, b Key) int {
		return bytes.Compare(encodeName(a, false), encodeName(b, false))
	})
	k := rapid.SampledFrom(keys).Draw(rt, "replica")
	return m.slots[k], m.models[k]
}

// appendAll has all slots append at once: in one transaction, or in several.
func (m *machine) appendAll(rt *rapid.T) {
	var all sync.WaitGroup
	for k, mod := range m.models {
		n := rapid.IntRange(0, 100).Draw(rt, "entries")
		first := mod.last() + 1
		if len(mod.log) == 0 {
			first = rapid.Uint64Range(1, 1000).Draw(rt, "first")
		}
		term := rapid.Uint64Range(1, 9).Draw(rt, "term")
		var es []*raft.Log
		for i := range uint64(n) {
			es = append(es, &raft.Log{
				Index: first + i, Term: term, Type: raft.LogType(i % 6),
				Data: []byte{byte(k.Shard), byte(k.Life), byte(i)}, Extensions: bytes.Repeat([]byte{7}, int(i%3)),
			})
		}
		if n > 0 {
			mod.log = append(mod.log, es...)
			mod.wrote()
		}
		all.Go(func() {
			if err := m.slots[k].StoreLogs(es); err != nil {
				m.t.Errorf("StoreLogs: %v", err)
			}
		})
	}
	all.Wait()
}

// overlap must leave everything as it is.
func (m *machine) overlap(rt *rapid.T) {
	s, mod := m.pick(rt)
	if len(mod.log) == 0 {
		return
	}
	at := rapid.Uint64Range(1, mod.last()+9).Filter(func(i uint64) bool { return i != mod.last()+1 }).Draw(rt, "at")
	if err := s.StoreLogs(entries(1, at, at+1)); err == nil {
		rt.Fatalf("append at %d to %d..%d was taken", at, mod.first(), mod.last())
	}
}

func (m *machine) cut(rt *rapid.T) {
	s, mod := m.pick(rt)
	lo := rapid.Uint64Range(0, mod.last()+2).Draw(rt, "min")
	hi := rapid.Uint64Range(0, mod.last()+2).Draw(rt, "max")
	err := s.DeleteRange(lo, hi)
	first, last := mod.first(), mod.last()
	hole := lo <= hi && lo > first && hi < last && len(mod.log) > 0
	if (err != nil) != hole {
		rt.Fatalf("DeleteRange %d to %d of %d..%d: %v", lo, hi, first, last, err)
	}
	if !hole && lo <= hi {
		mod.log = slices.DeleteFunc(mod.log, func(e *raft.Log) bool { return e.Index >= lo && e.Index <= hi })
	}
}

func (m *machine) set(rt *rapid.T) {
	s, mod := m.pick(rt)
	name := rapid.SampledFrom([]string{"CurrentTerm", "LastVoteTerm", "LastVoteCand"}).Draw(rt, "name")
	value := rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(rt, "value")
	must(m.t, s.Set([]byte(name), value))
	mod.values[name] = value
	mod.wrote()
}

func (m *machine) stage(rt *rapid.T) {
	s, mod := m.pick(rt)
	i := rapid.Uint64Range(0, 2000).Draw(rt, "commit")
	s.StageCommit(i)
	mod.staged = max(mod.staged, i)
}

func (m *machine) drop(rt *rapid.T) {
	if len(m.models) < 2 {
		return
	}
	s, _ := m.pick(rt)
	s.Close()
	must(m.t, m.st.Drop(s.lane.key))
	delete(m.models, s.lane.key)
	delete(m.slots, s.lane.key)
}

func (m *machine) create(rt *rapid.T) {
	k := key(rapid.Uint64Range(0, 4).Draw(rt, "shard"))
	if m.models[k] == nil {
		m.add(k)
	}
}

// reopen also looks at the bare file: what is in it, not only what is told.
func (m *machine) reopen() {
	stop(m.t, m.st)
	found, err := scan(m.path)
	must(m.t, err)
	if len(found) != len(m.models)+1 {
		m.t.Errorf("%d slots in the file, want %d and the format's", len(found), len(m.models))
	}
	for k, mod := range m.models {
		e := found[m.slots[k].lane.slot]
		if e == nil || e.first != mod.first() || e.last != mod.last() || e.missing != 0 {
			m.t.Errorf("replica %s: the file has %+v, want %d to %d", k, e, mod.first(), mod.last())
		}
		mod.staged = 0
	}
	m.start()
}

func (m *machine) check(rt *rapid.T) {
	for k, mod := range m.models {
		s := m.slots[k]
		first, last := s.lane.span()
		if first != mod.first() || last != mod.last() || s.Commit() != mod.commit {
			rt.Fatalf("replica %s: %d to %d, commit %d; want %d to %d, %d", k, first, last, s.Commit(), mod.first(), mod.last(), mod.commit)
		}
		next := 0
		must(m.t, s.Each(func(e *raft.Log) error {
			w := mod.log[next]
			if e.Index != w.Index || e.Term != w.Term || e.Type != w.Type || !bytes.Equal(e.Data, w.Data) || !bytes.Equal(e.Extensions, w.Extensions) {
				rt.Fatalf("replica %s: entry %+v, want %+v", k, e, w)
			}
			next++
			return nil
		}))
		if next != len(mod.log) {
			rt.Fatalf("replica %s: %d entries, want %d", k, next, len(mod.log))
		}
		for _, name := range []string{"CurrentTerm", "LastVoteTerm", "LastVoteCand"} {
			v, err := s.Get([]byte(name))
			w, ok := mod.values[name]
			if ok != (err == nil) || !bytes.Equal(v, w) {
				rt.Fatalf("replica %s: %s is %q, %v; want %q", k, name, v, err, w)
			}
		}
	}
}
