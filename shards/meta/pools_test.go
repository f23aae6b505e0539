package meta

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// says reads "b1 b2*3": backends named, with a weight; "b1@x" has another URL.
func says(text string) map[string]Named {
	n := Named{Sticky: &Sticky{TTL: 1}}
	for _, word := range strings.Fields(text) {
		b := Backend{Weight: 1}
		if _, err := fmt.Sscanf(word[strings.IndexAny(word+"*", "*@"):], "*%d", &b.Weight); err != nil {
			b.Weight = 1
		}
		id, url, other := strings.Cut(word, "@")
		id, _, _ = strings.Cut(id, "*")
		b.ID, b.URL = id, "http://"+id
		if other {
			b.URL = "http://" + url
		}
		n.Backends = append(n.Backends, b)
	}
	return map[string]Named{"p": n}
}

// record writes a pool as says reads it, with operators' decisions.
func record(p Pool) string {
	var words []string
	for _, b := range p.Backends {
		word := b.ID
		if b.Weight != 1 {
			word += fmt.Sprint("*", b.Weight)
		}
		if b.URL != "http://"+b.ID {
			word += "@" + strings.TrimPrefix(b.URL, "http://")
		}
		for mark, is := range map[string]bool{"+": b.Added, "-": b.Removed, "!": b.Out.Length > 0} {
			if is {
				word = mark + word
			}
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

func TestPools(t *testing.T) {
	long := map[string]time.Duration{"b1": deadAfter, "b2": deadAfter, "b3": deadAfter, "op": deadAfter, "out": deadAfter}
	for _, c := range []struct {
		name, was, one, two string
		missed              map[string]time.Duration
		want                string
	}{
		{"a union", "", "b1 b2", "b2 b3", nil, "b1 b2 b3"},
		{"one weighs otherwise", "b1 b2", "b1*3 b2", "b1 b2", nil, "b1 b2"},
		{"all weigh otherwise", "b1 b2", "b1*3 b2", "b1*3 b2", nil, "b1*3 b2"},
		{"one moved it", "b1", "b1@x", "b1", nil, "b1"},
		{"all moved it", "b1", "b1@x", "b1@x", nil, "b1@x"},
		{"one has never heard of it", "b1 b2", "b1", "b1 b2", long, "b1 b2"},
		{"new and unlike, as many say the one as the other", "", "b1*2", "b1*3", nil, "b1*2"},
		{"nobody names it for a moment", "b1 b2", "b1", "b1", nil, "b1 b2"},
		{"nobody names it any more", "b1 b2", "b1", "b1", long, "b1"},
		{"an operator's stays", "b1 +op", "b1", "b1", long, "b1 +op"},
		{"an operator's stays as it is", "+b1", "b1*4@x", "b1*4@x", nil, "+b1"},
		{"what an operator removed stays out", "-b1 b2", "b1 b2", "b1 b2", nil, "-b1 b2"},
		{"operators' word on its ejection stays", "!b1 b2", "b1*3 b2", "b1*3 b2", nil, "!b1*3 b2"},
		{"also when nobody names it", "b1 -out", "b1", "b1", long, "b1 -out"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := founded(t, 1, 1, "x", "y")
			if c.was != "" {
				p := Pool{Number: 5, Sticky: &Sticky{TTL: 1}}
				for _, word := range strings.Fields(c.was) {
					b := says(strings.TrimLeft(word, "+-!"))["p"].Backends[0]
					b.Added, b.Removed = word[0] == '+', word[0] == '-'
					if word[0] == '!' {
						b.Out = Word{Number: 7, Length: int64(time.Minute)}
					}
					p.Backends = append(p.Backends, b)
				}
				m = must(t, m, Command{Op: OpPool, Key: "p", Pool: &p})
			}
			seen := Seen{Named: map[string]map[string]Named{"x": says(c.one), "y": says(c.two)}, Missed: map[string]map[string]time.Duration{"p": c.missed}, Led: time.Hour}
			was := m.Pools["p"].Number
			for _, command := range Plan(m, seen) {
				if command.Op == OpPool {
					m = must(t, m, command)
				}
			}
			if got := record(m.Pools["p"]); got != c.want {
				t.Errorf("%q and %q make %q of %q, want %q", c.one, c.two, got, c.was, c.want)
			}
			if changed := c.want != c.was; changed != (m.Pools["p"].Number > was) {
				t.Errorf("number %d after %d", m.Pools["p"].Number, was)
			}
			for _, command := range Plan(m, seen) {
				if command.Op == OpPool {
					t.Errorf("it flaps: %s", command.Encode())
				}
			}
		})
	}
}

// TestPoolsOfTheWorld: two nodes name unlike backends and an operator removes one;
// all nodes agree, also after a restart of all.
func TestPoolsOfTheWorld(t *testing.T) {
	w := newWorld(t, 1)
	for _, text := range []string{"b1*2 b2", "b1 b2 b3", "b1 b2"} {
		w.add("", true).names = says(text)
	}
	w.found(2)
	agree := func(want string) {
		t.Helper()
		w.until(want, 3*time.Minute, func() error {
			for _, id := range w.ids() {
				if got := record(w.nodes[id].keeper.Map().Pools["p"]); got != want {
					return fmt.Errorf("%s has %q", id, got)
				}
			}
			return nil
		})
	}
	w.until("the beginning", time.Minute, w.well)
	agree("b1 b2 b3")
	p := w.newest().Pools["p"]
	p.Backends = append([]Backend(nil), p.Backends...)
	p.Backends[1].Removed = true
	w.until("the removal is written", time.Minute, func() error {
		_, err := w.nodes["n02"].keeper.Propose(context.Background(), Command{Op: OpPool, Key: "p", Seen: p.Revision, Pool: &p})
		return err
	})
	agree("b1 -b2 b3")
	for _, b := range w.nodes {
		b.stop()
	}
	w.run(time.Minute)
	for _, id := range w.ids() {
		w.nodes[id].start()
	}
	w.run(3 * time.Minute)
	agree("b1 -b2 b3")
	w.nodes["n02"].names = says("b1 b2") // its file is mended
	agree("b1 -b2")
	number := w.newest().Pools["p"].Number
	w.run(5 * time.Minute)
	if w.newest().Pools["p"].Number != number {
		t.Error("the record changes though nothing does")
	}
	if _, err := w.nodes["n01"].keeper.Propose(context.Background(), Command{Op: OpPool, Key: "p", Seen: 1, Pool: &p}); !errors.Is(err, ErrStale) && !errors.Is(err, ErrElsewhere) {
		t.Errorf("an old decision: %v", err)
	}
}

// After a restart of all, the first node to speak is not all who name a backend.
func TestPoolsStayUntilAllHaveSpoken(t *testing.T) {
	m := founded(t, 1, 1, "x", "y")
	p := Pool{Number: 5, Sticky: &Sticky{TTL: 2}, Backends: says("b1")["p"].Backends}
	m = must(t, m, Command{Op: OpPool, Key: "p", Pool: &p})
	seen := Seen{Named: map[string]map[string]Named{"x": says("b1*7@z b2")}, Led: time.Hour}
	for _, c := range Plan(m, seen) {
		m = must(t, m, c)
	}
	if got := record(m.Pools["p"]); got != "b1 b2" || m.Pools["p"].Sticky.TTL != 2 {
		t.Errorf("the pool is %s, TTL %d, when one of two has spoken", got, m.Pools["p"].Sticky.TTL)
	}
}
