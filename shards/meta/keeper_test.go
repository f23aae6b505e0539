package meta

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// ask asks a node as another would.
func (w *world) ask(t testing.TB, to, from string, q question) reply {
	t.Helper()
	b, err := w.nodes[to].keeper.Answer(context.Background(), from, marshal(q))
	if err != nil {
		t.Fatal(err)
	}
	r, _, err := readReply(b)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestStrangersDecideNothing(t *testing.T) {
	w := begin(t, 1, 1, 2)
	k := w.nodes["n01"].keeper
	before := k.Map()
	command := Command{Op: OpPool, Key: "p", Pool: &Pool{}}.Encode()
	if r := w.ask(t, "n01", "stranger", question{Command: command}); r.Refused == "" || r.Map == nil {
		t.Errorf("a stranger's command: %+v; it may have the map and no more", r)
	}
	if r := w.ask(t, "n01", "stranger", question{Groups: map[int]Group{1: {Incarnation: 9, Leader: "stranger", Term: 99}}}); r.Refused != "" {
		t.Errorf("%+v", r)
	}
	w.run(5 * time.Second)
	if m := k.Map(); m.Revision != before.Revision {
		t.Errorf("revision %d after %d", m.Revision, before.Revision)
	}
	if r := w.ask(t, "n01", "n01", question{Command: command}); r.Refused != "" || r.Revision != before.Revision+1 {
		t.Errorf("a node's command: %+v", r)
	}
}

func TestWhatCannotBeUnderstoodIsNotProposed(t *testing.T) {
	w := begin(t, 1, 1, 2)
	k := w.nodes["n01"].keeper
	if _, err := k.Propose(context.Background(), Command{Op: "dance"}); !errors.Is(err, ErrInvalid) {
		t.Errorf("an unknown command: %v", err)
	}
	w.nodes["n01"].names = map[string]Named{"p": {Backends: []Backend{{ID: "b1"}, {URL: "http://x", Weight: 1}, {ID: "b2", URL: "http://b2", Weight: 1}}}}
	w.run(5 * time.Second)
	if got := record(k.Map().Pools["p"]); got != "b2" {
		t.Errorf("of a report with broken backends %q was agreed on", got)
	}
}

func TestLeaveNeedsAnother(t *testing.T) {
	w := begin(t, 1, 1, 2)
	k := w.nodes["n01"].keeper
	ctx := context.Background()
	if err := k.Leave(ctx, "n01"); !errors.Is(err, ErrLast) {
		t.Errorf("the only node leaves: %v", err)
	}
	if err := k.Leave(ctx, "n09"); !errors.Is(err, ErrInvalid) {
		t.Errorf("an unknown node leaves: %v", err)
	}
	w.add("", true)
	w.until("two nodes", time.Minute, w.well)
	k = w.leads(0).box.keeper
	if err := k.Leave(ctx, "n02"); err != nil || k.Map().Nodes["n02"].State != Draining {
		t.Errorf("%v, %+v", err, k.Map().Nodes["n02"])
	}
	if err := k.Stay(ctx, "n02"); err != nil || k.Map().Nodes["n02"].State != Active || k.Map().Nodes["n02"].Leaving {
		t.Errorf("%v, %+v", err, k.Map().Nodes["n02"])
	}
	w.until("it stays", 5*time.Minute, w.well)
}

func TestBrokenLogGetsAnotherLife(t *testing.T) {
	w := begin(t, 1, 3, 2)
	b := w.nodes["n02"]
	s, _ := w.newest().Shards[1].Wants("n02")
	b.stop()
	b.hole = Own{Shard: 1, Incarnation: 1, Life: s.Life}
	w.run(10 * time.Second)
	b.start()
	w.until("its replica has another life", 2*time.Minute, func() error {
		if now, _ := w.newest().Shards[1].Wants("n02"); now.Life == s.Life {
			return errors.New("it has the old one")
		}
		return w.well()
	})
	for _, o := range b.keeper.Own() {
		if o.Shard == 1 && o.Life == s.Life {
			t.Error("the broken replica is kept")
		}
	}
}

// TestHalfADirectory: a node comes back without its logs, or without the list of
// its replicas. It must not vote as what it was.
func TestHalfADirectory(t *testing.T) {
	for name, lose := range map[string]func(*box){
		"without logs":          func(b *box) { b.logs = map[Own]*log{} },
		"without logs and list": func(b *box) { b.logs = map[Own]*log{}; delete(b.disk, ownFile) },
	} {
		t.Run(name, func(t *testing.T) {
			w := begin(t, 1, 3, 3)
			b, before := w.nodes["n02"], w.newest()
			b.stop()
			lose(b)
			w.run(10 * time.Second)
			b.start()
			w.until("its replicas have other lives", 5*time.Minute, func() error {
				for i, s := range w.newest().Shards {
					was, _ := before.Shards[i].Wants("n02")
					if now, _ := s.Wants("n02"); now.Life == was.Life {
						return fmt.Errorf("shard %d: it has the old one", i)
					}
				}
				return w.well()
			})
		})
	}
}

func TestStartNeedsWhatItHadToBeReadable(t *testing.T) {
	w := newWorld(t, 1)
	b := w.add("", true)
	for _, name := range []string{FileName, ownFile} {
		b.disk = map[string][]byte{name: []byte("{")}
		if _, err := NewKeeper(b.keeper.o); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("a broken %s: %v", name, err)
		}
	}
}

// TestNewMapsAreAnnounced: a node that keeps no replica of meta asks for a newer map as
// soon as the leader says that there is one, and not in its next round.
func TestNewMapsAreAnnounced(t *testing.T) {
	w := begin(t, 1, 5, 2)
	k := w.leads(0).box.keeper
	for _, b := range w.nodes {
		b.names = says("b1")
	}
	w.until("the pool is agreed on", time.Minute, func() error {
		if len(k.Map().Pools) == 0 {
			return errors.New("it is not")
		}
		return w.well()
	})
	w.until("all know the same", time.Minute, func() error {
		for id, b := range w.nodes {
			if b.keeper.Map().Revision != k.Map().Revision {
				return fmt.Errorf("%s does not", id)
			}
		}
		return nil
	})
	k = w.leads(0).box.keeper // another may lead by now, and no time passes from here on
	var outside []*box
	for id, b := range w.nodes {
		if !k.Map().Shards[0].keeps(id) {
			outside = append(outside, b)
		}
	}
	told := func() (n int) {
		for _, b := range outside {
			if len(b.keeper.nudges[0]) > 0 {
				n++
			}
			for _, nudge := range b.keeper.nudges {
				select {
				case <-nudge:
				default:
				}
			}
		}
		return n
	}
	announce := func() {
		k.announce()
		k.tasks.Wait()
	}
	announce()
	told()
	if announce(); told() > 0 || len(outside) != 2 {
		t.Errorf("%d nodes keep no replica of meta, and are told of what they know", len(outside))
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := k.Decide(ctx, "p", func(p *Pool) error { p.Policy = "random"; return nil }); err != nil {
		t.Fatal(err)
	}
	if announce(); told() != len(outside) {
		t.Error("a newer map is not announced to all who keep no replica of meta")
	}
	for _, b := range outside {
		if b.keeper.tell(); b.keeper.Map().Pools["p"].Policy != "random" {
			t.Errorf("%s has asked and has no newer map", b.id)
		}
	}
}

// stuck is neighbours of which one never answers; it says of the others whom it has asked.
type stuck struct {
	*box
	silent string
	asked  chan string
	calls  *atomic.Int32 // of the silent one
}

func (s stuck) Ask(ctx context.Context, node string, question []byte) ([]byte, error) {
	if node == s.silent {
		s.calls.Add(1)
		<-ctx.Done()
		return nil, ctx.Err()
	}
	b, err := s.box.Ask(ctx, node, question)
	s.asked <- node
	return b, err
}

// TestASilentNodeHoldsNoAnnouncementUp: the others hear of the next maps all the same,
// and it is not asked again before it has answered.
func TestASilentNodeHoldsNoAnnouncementUp(t *testing.T) {
	w := begin(t, 1, 5, 2)
	k, to := w.leads(0).box.keeper, ""
	neighbours := stuck{box: w.leads(0).box, asked: make(chan string, 8), calls: new(atomic.Int32)}
	for _, id := range w.ids() {
		if !k.Map().Shards[0].keeps(id) {
			neighbours.silent, to = to, id
		}
	}
	k.o.Neighbours = neighbours
	for i := range 3 {
		if err := neighbours.box.decides(fmt.Sprint("p", i)); err != nil {
			t.Fatal(err)
		}
		k.adopt()
		k.announce()
		select {
		case id := <-neighbours.asked:
			if id != to {
				t.Errorf("%s is told, and was to be %s", id, to)
			}
		case <-time.After(30 * time.Second):
			t.Fatalf("%s is not told", to)
		}
	}
	if n := neighbours.calls.Load(); n > 2 { // on a slow machine the first one may have run out
		t.Errorf("the silent one is told %d times", n)
	}
	k.cancel()
	k.tasks.Wait()
}

func FuzzAnswer(f *testing.F) {
	w := begin(f, 1, 2, 2)
	m := w.newest()
	shard := 1
	f.Add(marshal(question{Revision: 1, Groups: map[int]Group{1: {Members: []Member{{Node: "n01"}}}}, Look: &shard, Open: &Own{}}))
	f.Add(marshal(question{Command: Command{Op: OpLevel, Level: 1}.Encode(), Names: says("b1")}))
	f.Add(marshal(reply{Map: m.Encode(), Leader: "n01"}))
	k := w.leads(0).box.keeper
	f.Fuzz(func(t *testing.T, b []byte) {
		answer, err := k.Answer(context.Background(), "n01", b)
		if err == nil && !json.Valid(answer) {
			t.Errorf("answer %q", answer)
		}
		if _, m, err := readReply(b); err == nil && m != nil && m.check() != nil {
			t.Errorf("a map that breaks a rule: %v", m.check())
		}
		Plan(k.Map(), k.see())
	})
}
