package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/starling-lb/starling/node/admin"
	"github.com/starling-lb/starling/node/api"
	"github.com/starling-lb/starling/node/quorum"
	"github.com/starling-lb/starling/proxy/backend"
	"github.com/starling-lb/starling/shards/meta"
)

// A word is heeded once: in full where it is news, for what it has left where it was
// found at a start, and not at all where it is long over.
func TestAWordIsHeededOnce(t *testing.T) {
	const now, length = 1_800_000_000_000, 10 * time.Second
	none := meta.Word{}
	out := func(ago time.Duration) meta.Word {
		return meta.Word{Number: uint64(now - ago.Milliseconds()), Length: int64(length)}
	}
	in := func(ago time.Duration) meta.Word { return meta.Word{Number: uint64(now - ago.Milliseconds())} }
	for _, c := range []struct {
		name  string
		last  meta.Word
		known bool
		cut   bool // off, until just now
		word  meta.Word
		order order
		left  time.Duration
	}{
		{"at a start: no word", none, false, false, none, noOrder, 0},
		{"at a start: out for some time more", none, false, false, out(4 * time.Second), outOrder, 6 * time.Second},
		{"at a start, by a clock that is behind", none, false, false, out(-time.Hour), outOrder, length},
		{"at a start: it was out", none, false, false, out(11 * time.Second), noOrder, 0},
		{"at a start: it was let in", none, false, false, in(time.Second), noOrder, 0},
		{"news", none, true, false, out(300 * time.Millisecond), outOrder, length},
		{"news, by a clock that is ahead", none, true, false, out(50 * time.Second), outOrder, length},
		{"news of long ago, of who was cut off", none, true, true, out(2 * time.Minute), lateOrder, 0},
		{"news, by a clock that is far behind", none, true, false, out(time.Hour), outOrder, length},
		{"let in, by a clock that is far behind", out(time.Hour), true, false, in(time.Hour - time.Second), inOrder, 0},
		{"news of who was cut off", none, true, true, out(30 * time.Second), outOrder, length},
		{"heeded before", out(time.Second), true, false, out(time.Second), noOrder, 0},
		{"out once more", out(5 * time.Second), true, false, out(time.Second), outOrder, length},
		{"let in", out(time.Second), true, false, in(0), inOrder, 0},
		{"let in by a word of long ago", out(time.Hour), true, true, in(30 * time.Minute), lateOrder, 0},
		{"taken back", out(time.Second), true, false, none, backOrder, 0},
		{"taken back when it was in", in(time.Second), true, false, none, noOrder, 0},
	} {
		order, left := due(c.last, c.known, !c.cut, c.word, time.UnixMilli(now))
		if order != c.order || left != c.left {
			t.Errorf("%s: order %d for %v, want %d for %v", c.name, order, left, c.order, c.left)
		}
	}
}

// still is a node of a cluster that asks nobody: what it knows is what its directory
// holds.
type still struct {
	*Node
	t    *testing.T
	said bytes.Buffer // its log
}

func newStill(t *testing.T, m *meta.Map) *still {
	t.Helper()
	s := &still{t: t}
	dir := t.TempDir()
	text := fmt.Sprintf("node: {name: n1, data_dir: %s}\nadmin: {address: 127.0.0.1:0}\ncluster: {bind: 127.0.0.1:0, rpc: 127.0.0.1:0}\n", dir)
	cfg, err := Parse("starling.yaml", []byte(text+twoPools), func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatal(err)
	}
	if m != nil {
		if err := m.Save(dir); err != nil {
			t.Fatal(err)
		}
	}
	if s.Node, err = New(cfg, Options{Logger: slog.New(slog.NewTextHandler(&s.said, nil))}); err != nil {
		t.Fatal(err)
	}
	for _, part := range []func(context.Context) error{s.open, s.supplied, s.admin.Start, s.remember} {
		if err := part(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if err := errors.Join(s.disagree(context.Background()), s.admin.Stop(context.Background()), s.dir.close()); err != nil {
			t.Error(err)
		}
	})
	return s
}

func record() meta.Pool {
	return meta.Pool{Revision: 1, Number: 1, Backends: []meta.Backend{{ID: "b1", URL: "http://127.0.0.1:1", Weight: 1}, {ID: "b2", URL: "http://127.0.0.1:2", Weight: 1}}}
}

// agreed has the cluster agree on a word on b1.
func (s *still) agreed(number uint64, word meta.Word) {
	p := record()
	p.Number, p.Backends[0].Out = number, word
	s.supply.agree(map[string]meta.Pool{"p": p})
}

func (s *still) is() backend.State { return s.proxy.Pools()[0].Backends()[0].Standing().State }

// over is a word that was over so long ago.
func over(ago time.Duration) meta.Word {
	return meta.Word{Number: uint64(time.Now().Add(-ago - time.Second).UnixMilli()), Length: int64(time.Second)}
}

// No word is agreed on while a node is there that does not know words: it would stop at
// the record, and start no more. The map's level does not tell of one that was new once.
func TestWordsWaitForOldNodes(t *testing.T) {
	m := meta.NewMap("a", 1, 3, meta.WordLevel, []meta.Newcomer{{ID: "a", Name: "n1", Hosts: true, Level: 2}, {ID: "b", Name: "n2", Hosts: true, Level: 2}})
	m.Pools = map[string]meta.Pool{"p": record()}
	for _, c := range []struct {
		name   string
		level  uint32 // of the map
		second meta.Node
		want   string // "": it is agreed on
	}{
		{"all know words", 2, meta.Node{State: meta.Active, Level: 2}, ""},
		{"the map's level is not raised yet", 1, meta.Node{State: meta.Active, Level: 2}, "does not work yet at a level"},
		{"one was never new", 1, meta.Node{State: meta.Active, Level: 1}, "node n2 ran a program that does not know this"},
		{"one is old again", 2, meta.Node{State: meta.Active, Level: 1}, "node n2 ran a program that does not know this"},
		{"an old one joins", 2, meta.Node{State: meta.Joining, Level: 1}, "node n2 ran a program that does not know this"},
		{"an old one is dead", 2, meta.Node{State: meta.Dead, Level: 1}, ""},
		{"an old one was removed", 2, meta.Node{State: meta.Removed, Level: 1}, ""},
	} {
		m := *m
		m.Level, m.Nodes = c.level, maps.Clone(m.Nodes)
		c.second.Name, c.second.Hosts = "n2", true
		m.Nodes["b"] = c.second
		n, asked := newStill(t, &m), 0
		n.supply.together = func(string, func(*meta.Pool) error) error { asked++; return nil }
		for _, verb := range []admin.Verb{admin.Eject, admin.Admit} {
			asked = 0
			err := n.ChangeBackend("b1", verb)
			var refused *admin.Error
			if c.want == "" && (err != nil || asked != 1) {
				t.Errorf("%s: %v, %d proposed", c.name, err, asked)
			}
			if c.want != "" && (!errors.As(err, &refused) || refused.Code != admin.Conflict || !strings.Contains(refused.Message, c.want) || asked > 0) {
				t.Errorf("%s: %v, %d proposed; want a conflict, %q", c.name, err, asked, c.want)
			}
		}
	}
}

// Of members, those that live count, whatever is agreed on of them.
func TestOldMembers(t *testing.T) {
	m := &meta.Map{Level: 2, Nodes: map[string]meta.Node{"a": {Name: "n1", State: meta.Active, Level: 2}, "b": {Name: "n2", State: meta.Active, Level: 2}}}
	for state, old := range map[backend.MemberState]bool{
		backend.MemberAlive: true, backend.MemberSuspect: true, backend.MemberDraining: true, backend.MemberDead: false, backend.MemberLeft: false,
	} {
		err := tooOld(2, m, []api.Member{{ID: "a", Name: "n1", State: backend.MemberAlive, Level: 2}, {ID: "b", Name: "n2", State: state, Level: 1}})
		if (err != nil) != old || old && !strings.Contains(err.Error(), "node n2 runs a program") {
			t.Errorf("a member that is %s: %v", state, err)
		}
	}
	if quorum.Level < meta.WordLevel {
		t.Error("this program does not know words itself")
	}
}

// A node that starts without the cluster's record has heeded nothing yet: an old word in
// it is no news.
func TestOldWordsAreNoNewsToNewcomers(t *testing.T) {
	n := newStill(t, nil)
	n.agreed(2, over(20*time.Second))
	if got := n.is(); got != backend.Active {
		t.Errorf("b1 is %s by a word that was over before this node came", got)
	}
	n.agreed(3, meta.Word{Number: uint64(time.Now().UnixMilli()), Length: int64(time.Hour)})
	if got := n.is(); got != backend.Ejected {
		t.Errorf("b1 is %s after news", got)
	}
}

// A word that is passed over is told of: a clock may be wrong.
func TestWordsPassedOverAreLogged(t *testing.T) {
	m := meta.NewMap("a", 1, 3, meta.WordLevel, []meta.Newcomer{{ID: "a", Name: "n1", Hosts: true, Level: 2}})
	m.Pools = map[string]meta.Pool{"p": record()}
	n := newStill(t, m) // which hears nobody
	n.agreed(2, over(5*time.Minute))
	if got, text := n.is(), n.said.String(); got != backend.Active || !strings.Contains(text, "is passed over") || !strings.Contains(text, "backend=b1") {
		t.Errorf("b1 is %s, the log says %s", got, text)
	}
}

// What was heeded of a backend that no pool has any more is forgotten.
func TestHeededIsBounded(t *testing.T) {
	f := newFiled(t, twoPools)
	heeded := func() string {
		f.supply.mu.Lock()
		defer f.supply.mu.Unlock()
		return fmt.Sprint(slices.Sorted(maps.Keys(f.heeded)))
	}
	for i := range 3 {
		id := fmt.Sprintf("x%d", i)
		err := errors.Join(f.AddBackend("q", api.NewBackend{ID: id, URL: "http://127.0.0.1:4", Weight: 1}), f.ChangeBackend(id, admin.Eject), f.RemoveBackend("q", id))
		if err != nil {
			t.Fatal(err)
		}
	}
	if got := heeded(); got != "[b1 b2 b3]" {
		t.Errorf("heeded of %s", got)
	}
}
