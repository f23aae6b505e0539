package meta

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newcomers are nodes named so, each of which hosts shards and sees the others.
func newcomers(ids ...string) (all []Newcomer) {
	for _, id := range ids {
		all = append(all, Newcomer{ID: id, Name: "node " + id, Hosts: true, Level: 1, Expect: len(ids), Sees: len(ids)})
	}
	return all
}

// founded is a cluster of active nodes at its beginning.
func founded(t testing.TB, count, replicas int, ids ...string) *Map {
	t.Helper()
	m, r := Apply(&Map{}, Command{Op: OpFound, Map: NewMap(ids[0], count, replicas, 1, newcomers(ids...))})
	if r.Refused != nil {
		t.Fatal(r.Refused)
	}
	for _, id := range ids[1:] {
		n := m.Nodes[id]
		n.State = Active
		m = must(t, m, Command{Op: OpNode, Key: id, Seen: n.Revision, Node: &n})
	}
	return m
}

// must applies commands that have to be done, each after a journey through the log.
func must(t testing.TB, m *Map, commands ...Command) *Map {
	t.Helper()
	for _, c := range commands {
		decoded, err := DecodeCommand(c.Encode())
		if err != nil {
			t.Fatalf("%s", err)
		}
		next, r := Apply(m, decoded)
		if r.Refused != nil || next.Revision != m.Revision+1 {
			t.Fatalf("%s: %v, revision %d after %d", c.Encode(), r.Refused, next.Revision, m.Revision)
		}
		m = next
	}
	return m
}

func set(nodes ...string) (all []Replica) {
	for _, n := range nodes {
		id, isNonvoter := strings.CutPrefix(n, "-")
		all = append(all, Replica{id, 1, !isNonvoter})
	}
	return all
}

func TestApply(t *testing.T) {
	m := founded(t, 2, 3, "a", "b", "c")
	creating := Shard{Incarnation: 1, Phase: Creating, Founder: "a", Replicas: set("a", "b", "c")}
	m = must(t, m, Command{Op: OpShard, Number: 1, Seen: m.Shards[1].Revision, Shard: &creating})
	ready := creating
	ready.Phase = Ready
	m = must(t, m, Command{Op: OpShard, Number: 2, Seen: m.Shards[2].Revision, Shard: &ready},
		Command{Op: OpPool, Key: "llm", Pool: &Pool{Backends: []Backend{{ID: "b1", URL: "http://x", Weight: 1}}}})
	shard := func(i int, change func(*Shard)) Command {
		s := m.Shards[i]
		change(&s)
		return Command{Op: OpShard, Number: i, Seen: m.Shards[i].Revision, Shard: &s}
	}
	node := func(id string, seen uint64, change func(*Node)) Command {
		n := m.Nodes[id]
		change(&n)
		return Command{Op: OpNode, Key: id, Seen: seen, Node: &n}
	}
	rev := func(id string) uint64 { return m.Nodes[id].Revision }
	for name, c := range map[string]struct {
		c    Command
		want error
	}{
		"a second founding":             {Command{Op: OpFound, Map: NewMap("x", 1, 1, 1, newcomers("x"))}, ErrFounded},
		"a node changes":                {node("b", rev("b"), func(n *Node) { n.State = Dead }), nil},
		"a node joins":                  {node("d", 0, func(n *Node) { n.State = Joining }), nil},
		"a node joins twice":            {node("b", 0, func(n *Node) { n.State = Joining }), ErrStale},
		"a node that changed since":     {node("b", rev("b")-1, func(n *Node) { n.State = Dead }), ErrStale},
		"a holder is forgotten":         {node("b", rev("b"), func(n *Node) { n.State = Removed }), ErrInvalid},
		"what creates is created":       {shard(1, func(s *Shard) { s.Phase = Ready }), nil},
		"what creates is replanned":     {shard(1, func(s *Shard) { s.Phase = Planned }), ErrInvalid},
		"a second founder":              {shard(1, func(s *Shard) { s.Founder = "b" }), ErrInvalid},
		"a second founder's new life":   {shard(1, func(s *Shard) { s.Founder, s.Incarnation = "b", 2 }), nil},
		"what was created is again":     {shard(2, func(s *Shard) { s.Phase = Creating }), ErrInvalid},
		"what was created is planned":   {shard(2, func(s *Shard) { s.Phase = Planned }), ErrInvalid},
		"a new life":                    {shard(2, func(s *Shard) { s.Phase, s.Incarnation = Creating, 2 }), nil},
		"an earlier life":               {shard(2, func(s *Shard) { s.Incarnation = 0 }), ErrInvalid},
		"a shard that changed since":    {Command{Op: OpShard, Number: 2, Seen: 1, Shard: &ready}, ErrStale},
		"a shard that is not there":     {Command{Op: OpShard, Number: 3, Shard: &ready}, ErrInvalid},
		"a replica on nobody":           {shard(2, func(s *Shard) { s.Replicas = set("a", "b", "x") }), ErrInvalid},
		"two replicas on one node":      {shard(2, func(s *Shard) { s.Replicas = set("a", "a", "b") }), ErrInvalid},
		"replicas out of order":         {shard(2, func(s *Shard) { s.Replicas = set("b", "a") }), ErrInvalid},
		"nobody votes":                  {shard(2, func(s *Shard) { s.Replicas = set("-a") }), ErrInvalid},
		"a founder without a replica":   {shard(1, func(s *Shard) { s.Replicas = set("b", "c") }), ErrInvalid},
		"a pool goes":                   {Command{Op: OpPool, Key: "llm", Seen: m.Pools["llm"].Revision}, nil},
		"a pool that changed since":     {Command{Op: OpPool, Key: "llm", Pool: &Pool{}}, ErrStale},
		"a level that not all can do":   {Command{Op: OpLevel, Level: 2}, ErrInvalid},
		"a level that is there":         {Command{Op: OpLevel, Level: 1}, ErrStale},
		"a command that has no sense":   {Command{Op: "dance"}, errCode},
		"a node without a state":        {node("e", 0, func(n *Node) { n.State = "" }), errCode},
		"backends that are out of line": {Command{Op: OpPool, Key: "p", Pool: &Pool{Backends: []Backend{{ID: "b", URL: "u", Weight: 1}, {ID: "a", URL: "u", Weight: 1}}}}, errCode},
	} {
		t.Run(name, func(t *testing.T) {
			before := m.Encode()
			var got error
			decoded, err := DecodeCommand(c.c.Encode())
			if err != nil {
				got = err
			} else {
				next, r := Apply(m, decoded)
				if got = r.Refused; got != nil && next != m {
					t.Error("a refused command changed the map")
				}
			}
			if !errors.Is(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
			if !bytes.Equal(before, m.Encode()) {
				t.Error("a map that was handed out changed")
			}
		})
	}
}

func TestRemovedNodesMakeRoom(t *testing.T) {
	m := founded(t, 1, 1, "a")
	add := func(id string) Result {
		next, r := Apply(m, Command{Op: OpNode, Key: id, Node: &Node{State: Active}})
		m = next
		return r
	}
	for i := range maxNodes - 1 {
		if r := add(fmt.Sprint("n", i)); r.Refused != nil {
			t.Fatal(r.Refused)
		}
	}
	if r := add("late"); !errors.Is(r.Refused, ErrInvalid) {
		t.Errorf("one node too many: %v", r.Refused)
	}
	for _, id := range []string{"n7", "n3"} {
		m = must(t, m, Command{Op: OpNode, Key: id, Seen: m.Nodes[id].Revision, Node: &Node{State: Removed}})
	}
	if r := add("late"); r.Refused != nil || len(m.Nodes) != maxNodes {
		t.Errorf("with a removed node: %v, %d nodes", r.Refused, len(m.Nodes))
	}
	if _, known := m.Nodes["n3"]; m.Nodes["n7"].State != "" || !known {
		t.Error("not the one that was removed first made room")
	}
}

// TestSameCommandsSameBytes drives two machines with the same random commands, one
// of them through snapshots.
func TestSameCommandsSameBytes(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	one, two := NewMachine(), NewMachine()
	apply := func(c Command) {
		for _, m := range []*Machine{one, two} {
			if _, err := m.Apply(1, 1, [][]byte{c.Encode()}); err != nil {
				t.Fatal(err)
			}
		}
	}
	apply(Command{Op: OpFound, Map: NewMap("a", 4, 3, 1, newcomers("a", "b", "c", "d"))})
	for range 500 {
		m, _ := one.Map()
		apply(anyCommand(r, m))
		if r.IntN(10) == 0 {
			w, err := two.Snapshot()
			if err != nil {
				t.Fatal(err)
			}
			var b bytes.Buffer
			if _, err := w.WriteTo(&b); err != nil {
				t.Fatal(err)
			}
			two.Reset()
			if err := two.Restore(&b); err != nil {
				t.Fatal(err)
			}
		}
	}
	a, _ := one.Map()
	b, _ := two.Map()
	if !bytes.Equal(a.Encode(), b.Encode()) {
		t.Errorf("the machines differ:\n%s\n%s", a.Encode(), b.Encode())
	}
	if a.Revision < 50 {
		t.Errorf("of 500 commands %d were done", a.Revision)
	}
}

// anyCommand is often one that may be done.
func anyCommand(r *rand.Rand, m *Map) Command {
	ids := []string{"a", "b", "c", "d", "e"}
	id := ids[r.IntN(len(ids))]
	c := Command{Op: []Op{OpNode, OpShard, OpPool, OpLevel}[r.IntN(4)], Key: id, Level: m.Level + uint32(r.IntN(2)) + 1}
	switch c.Op {
	case OpNode:
		c.Seen = m.Nodes[id].Revision
		c.Node = &Node{State: []NodeState{Joining, Active, Draining, Dead, Removed}[r.IntN(5)], Level: 1 + uint32(r.IntN(3))}
	case OpShard:
		c.Key, c.Number = "", r.IntN(len(m.Shards))
		s := m.Shards[c.Number]
		c.Seen = s.Revision
		s.Incarnation, s.Phase, s.Replicas, s.Founder = s.Incarnation+uint32(r.IntN(2)), []Phase{Creating, Ready}[r.IntN(2)], set("a", "b"), "a"
		c.Shard = &s
	case OpPool:
		c.Seen = m.Pools[id].Revision
		c.Pool = &Pool{Backends: []Backend{{ID: id, URL: "http://" + id, Weight: 1 + r.IntN(5)}}}
	}
	if r.IntN(10) == 0 {
		c.Seen++
	}
	return c
}

// TestDigest: maps that are alike come to the same, also one from a snapshot, which
// does not know after which entry before its first; others do not.
func TestDigest(t *testing.T) {
	one, two := NewMachine(), NewMachine()
	apply := func(m *Machine, index uint64, c Command) {
		t.Helper()
		got, err := m.Apply(1, index, [][]byte{c.Encode()})
		if err == nil {
			err = got[0].(Result).Refused
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	found := NewMap("a", 2, 3, 1, newcomers("a", "b"))
	found.Cluster, found.Secret = "6f0c5b1e-9a3d-4c27-8e11-2f6d0b7a9c35", bytes.Repeat([]byte("s"), 32)
	apply(one, 1, Command{Op: OpFound, Map: found})
	index, first := one.Digest()
	if index != 1 {
		t.Errorf("after entry %d, want 1", index)
	}
	if got := fmt.Sprintf("%d-%016x", DigestForm, first); got != "1-ca0d7ed2880e9863" {
		t.Errorf("the map comes to %s, want 1-ca0d7ed2880e9863: where that is meant raise DigestForm, and write here what it is by now", got)
	}
	w, err := one.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if _, err := w.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	if err := two.Restore(&b); err != nil {
		t.Fatal(err)
	}
	if index, digest := two.Digest(); index != 0 || digest != first {
		t.Errorf("restored: %016x after entry %d, want %016x after 0", digest, index, first)
	}
	pool := func(weight int) Command {
		return Command{Op: OpPool, Key: "p", Pool: &Pool{Backends: []Backend{{ID: "b", URL: "http://b", Weight: weight}}}}
	}
	apply(one, 2, pool(1))
	apply(two, 2, pool(1))
	index, second := one.Digest()
	if i, d := two.Digest(); i != index || d != second || d == first {
		t.Errorf("after entry %d %016x, the other after %d %016x, both before it %016x", index, second, i, d, first)
	}
	m, _ := one.Map()
	other := pool(2)
	other.Seen = m.Pools["p"].Revision
	apply(one, 3, other)
	if _, d := one.Digest(); d == second {
		t.Error("another weight comes to the same")
	}
	two.Reset()
	if index, _ := two.Digest(); index != 0 {
		t.Errorf("begun anew, and after entry %d", index)
	}
}

func TestMachineHaltsOnWhatItCannotUnderstand(t *testing.T) {
	m := NewMachine()
	found := Command{Op: OpFound, Map: NewMap("a", 1, 1, 1, newcomers("a"))}.Encode()
	for name, b := range map[string]string{
		"a newer version":  strings.Replace(string(found), `"version":1`, `"version":2`, 1),
		"an unknown op":    `{"version":1,"body":{"op":"dance"}}`,
		"an unknown field": `{"version":1,"body":{"op":"level","level":3,"mood":"good"}}`,
		"half a command":   string(found[:len(found)/2]),
		"two commands":     string(found) + string(found),
		"nothing":          "",
	} {
		if _, err := m.Apply(1, 1, [][]byte{found, []byte(b)}); !errors.Is(err, errCode) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if now, _ := m.Map(); now.Revision != 0 {
		t.Error("the first command of an entry was done, the second not understood")
	}
	if err := m.Restore(strings.NewReader(`{"version":1,"body":{"cluster":"c"}}`)); err == nil {
		t.Error("a map without shards was restored")
	}
}

func TestMachineTellsOfChanges(t *testing.T) {
	m := NewMachine()
	_, changed := m.Map()
	found := Command{Op: OpFound, Map: NewMap("a", 1, 1, 1, newcomers("a"))}.Encode()
	for i, want := range []bool{true, false} { // the second is refused
		results, err := m.Apply(1, 1, [][]byte{found})
		if err != nil {
			t.Fatal(err)
		}
		select {
		case <-changed:
			if !want {
				t.Error("told of a change that was none")
			}
		default:
			if want {
				t.Error("did not tell of the change")
			}
		}
		if r := results[0].(Result); r.Revision != 1 || (r.Refused == nil) != (i == 0) {
			t.Errorf("result %d: %+v", i, r)
		}
		_, changed = m.Map()
	}
}

func TestSaveAndLoad(t *testing.T) {
	dir := t.TempDir()
	if m, err := Load(dir); m != nil || err != nil {
		t.Errorf("an empty directory: %v, %v", m, err)
	}
	m := founded(t, 3, 3, "a", "b")
	if err := m.Save(dir); err != nil {
		t.Fatal(err)
	}
	got, err := Load(dir)
	if err != nil || !bytes.Equal(got.Encode(), m.Encode()) {
		t.Errorf("it came back as %v, %v", got, err)
	}
	name := filepath.Join(dir, FileName)
	if st, err := os.Stat(name); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("mode of the file: %v, %v", st.Mode(), err)
	}
	if err := m.Public().Save(dir); !errors.Is(err, ErrInvalid) {
		t.Errorf("a map without the secret was saved over the one with it: %v", err)
	}
	for _, b := range []string{"", "{}", string(m.Public().Encode())} {
		if err := os.WriteFile(name, []byte(b), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(dir); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%q was loaded, or the error does not name the file: %v", b, err)
		}
	}
	if bytes.Contains(m.Public().Encode(), []byte("secret")) {
		t.Error("the public map has the secret")
	}
}

func FuzzMap(f *testing.F) {
	f.Add(founded(f, 2, 3, "a", "b").Encode())
	f.Add([]byte(`{"version":1,"body":null}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := DecodeMap(b)
		if err != nil {
			return
		}
		again, err := DecodeMap(m.Encode())
		if err != nil || !bytes.Equal(again.Encode(), m.Encode()) {
			t.Errorf("a map that was read is not written the same: %v", err)
		}
	})
}

func FuzzCommand(f *testing.F) {
	m := founded(f, 2, 3, "a", "b")
	f.Add(Command{Op: OpFound, Map: m}.Encode())
	f.Add(Command{Op: OpShard, Number: 1, Seen: m.Shards[1].Revision, Shard: &m.Shards[1]}.Encode())
	f.Add(Command{Op: OpPool, Key: "p", Pool: &Pool{Backends: []Backend{{ID: "b", URL: "u", Weight: 1}}}}.Encode())
	f.Add([]byte(`{"version":1,"body":{"op":"shard","number":-1,"shard":{}}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := DecodeCommand(b)
		if err != nil {
			return
		}
		if next, r := Apply(m, c); r.Refused == nil && next.check() != nil {
			t.Errorf("%s made a map that breaks a rule: %v", b, next.check())
		}
		if next, r := Apply(&Map{}, c); r.Refused == nil && next.check() != nil {
			t.Errorf("%s founded a cluster that breaks a rule: %v", b, next.check())
		}
	})
}
