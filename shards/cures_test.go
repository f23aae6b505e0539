package shards

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// rule is one of the protocol, by the story of what happens without it: the story
// says what was broken. With the rule it says nothing.
type ruleStory struct {
	name    string
	without func(*world)
	tell    func(*world) string
}

// lacking takes a cure out.
func lacking(c cure) func(*world) { return func(w *world) { w.without = c } }

// TestRules tells each story with its rule and without. A story has a few tries, at
// different moments of the nodes' rounds: without the rule one must show the harm,
// with it none may.
func TestRules(t *testing.T) {
	const tries = 6
	for _, s := range slices.Concat(leaseStories(), holdStories(), answerStories(), holderStories()) {
		t.Run(s.name, func(t *testing.T) {
			told := func(try int, with ...func(*world)) (broken string) {
				virtually(t, func(t *testing.T) {
					w := newWorld(t, uint64(try), five(), with...)
					w.wait(time.Duration(try) * 83 * time.Millisecond)
					broken = s.tell(w)
				})
				return broken
			}
			harm := ""
			for try := range tries {
				if broken := told(try); broken != "" {
					t.Errorf("try %d, with the rule: %s", try, broken)
				}
				if harm == "" {
					harm = told(try, s.without)
				}
			}
			if harm == "" {
				t.Error("without the rule nothing broke: the story proves nothing")
			}
			t.Log("without: " + harm)
		})
	}
}

// starts says whether a turn on a node would write to a backend now.
func (w *world) starts(node, session, backend string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	turn, err := w.node(node).router.Turn(ctx, "llm", []byte(session), 0, func() string { return "" })
	if err != nil {
		return false
	}
	defer turn.End()
	return turn.Home().Backend == backend && turn.Look() == nil
}

// shift has a session moved, asked through a node, in a time.
func (w *world) shift(via, session, to string, in time.Duration) bool {
	ctx, cancel := context.WithTimeout(context.Background(), in)
	defer cancel()
	b, err := w.node(via).router.Move(ctx, "llm", []byte(session), to)
	return err == nil && b.Backend == to
}

// deafen cuts what a node sends; what is sent to it still comes.
func (w *world) deafen(from string) {
	w.set(func() {
		for _, to := range w.names {
			if to != from {
				w.cut[[2]string{from, to}] = true
			}
		}
	})
}

// forgotten waits until d is no holder any more by the leader's table.
func (w *world) forgotten(leader, node string) {
	w.until(node+" is no holder", func() bool {
		return !slices.ContainsFunc(w.node(leader).machine.Holders(), func(h Holder) bool { return h.Node == node })
	})
}

// watched has d start turns again and again until the end of the wait, and says
// whether one started on the old backend once the session has another.
func (w *world) watched(leader, session, old, now string) string {
	w.forgotten(leader, "d")
	if !w.shift("e", session, now, 5*time.Second) {
		return "the session could not be moved"
	}
	if w.starts("d", session, old) {
		return "a turn starts on " + old + " beside one on " + now
	}
	return ""
}

func leaseStories() []ruleStory {
	return []ruleStory{
		{"a lease counts from the question", lacking(cureAskTime), func(w *world) string {
			w.set(func() { w.slow[[2]string{"a", "d"}] = 1500 * time.Millisecond })
			w.calm()
			w.at("d", "llm", "s", 1)
			w.graced()
			w.deafen("d") // grants still come
			w.set(func() { w.dead["d"] = true })
			return w.watched("a", "s", "llm-b1", "llm-b2")
		}},
		{"and for longer at the leader, for clocks drift", lacking(cureMargin), func(w *world) string {
			w.set(func() { w.rate["d"] = 0.89 })
			w.at("d", "llm", "s", 1)
			w.graced()
			w.isolate("d", true)
			w.set(func() { w.dead["d"] = true })
			return w.watched("a", "s", "llm-b1", "llm-b2")
		}},
		{"a new leader waits for the old one's leases", lacking(cureGrace), func(w *world) string {
			w.at("d", "llm", "s", 1)
			w.at("e", "llm", "s", 1)
			w.graced()
			w.isolate("d", true)
			w.set(func() { w.dead["d"] = true })
			w.lead("b")
			return w.watched("b", "s", "llm-b1", "llm-b2")
		}},
		{"a majority confirms a leader after the question", func(w *world) { w.noQuorum = true }, func(w *world) string {
			w.at("d", "llm", "s", 1)
			w.at("e", "llm", "s", 1)
			w.graced()
			for _, other := range []string{"b", "c", "e"} { // a and d hear each other alone
				w.part("a", other, true)
				w.part("d", other, true)
			}
			w.lead("b")
			w.set(func() { w.dead["d"] = true })
			return w.watched("b", "s", "llm-b1", "llm-b2")
		}},
		{"a leader has applied what was committed before its term", func(w *world) { w.noProof = true }, func(w *world) string {
			w.at("d", "llm", "other", 1) // it is a holder, and knows nothing of s
			w.at("e", "llm", "s", 1)
			w.graced()
			w.part("a", "b", true)
			if !w.shift("e", "s", "llm-b2", 5*time.Second) {
				return "the session could not be moved"
			}
			w.lead("b")
			w.graced()
			if turn, err := w.turn("d", "llm", "s", 3); err == nil {
				defer turn.End()
				if turn.Home().Backend == "llm-b1" && turn.Look() == nil {
					return "a turn goes by what was before the move"
				}
			}
			return ""
		}},
		{"a holder that is being taken away gets no lease", lacking(cureTakenAway), func(w *world) string {
			w.at("d", "llm", "s", 1)
			w.at("e", "llm", "s", 1)
			w.graced()
			w.isolate("d", true)
			w.wait(lease + margin + 100*time.Millisecond)
			w.set(func() { w.dead["d"] = true; w.stalled = true })
			r := w.node("a").router.desk.owner(1)
			w.until("it is being taken away", func() bool { r.mu.Lock(); defer r.mu.Unlock(); return len(r.reign.passing) > 0 })
			w.isolate("d", false)
			w.wait(1500 * time.Millisecond)
			w.set(func() { w.stalled = false; clear(w.dead) })
			w.wait(20 * time.Millisecond)
			if w.leased("d") && len(w.node("a").machine.Holders()) < 2 {
				return "a node has a lease, and is no holder"
			}
			return ""
		}},
		{"a section of a lower term begins nothing", lacking(cureOldTerm), func(w *world) string {
			w.at("d", "llm", "s", 1)
			w.graced()
			old := head{node: "a", life: 1, incarnation: 1, term: 1}
			w.lead("b")
			w.until("d has a lease of b", func() bool { w.starts("d", "s", "llm-b1"); return w.leased("d") })
			w.node("d").router.sections[0].begin(w.node("d").router, old) // it was on its way for that long
			w.wait(lease)
			if _, err := w.turn("d", "llm", "s", 1); err != nil {
				return "the node never has a lease again: " + err.Error()
			}
			return ""
		}},
	}
}

func (w *world) leased(node string) bool {
	return w.node(node).router.sections[0].leased(w.clock(node)) && w.node(node).router.sections[0].head.Load().term == w.termNow()
}

func (w *world) termNow() (term uint64) {
	w.get(func() { term = w.term })
	return term
}

// calm gives questions the time that a slow link takes.
func (w *world) calm() {
	w.set(func() {
		for pool, rule := range w.rules {
			rule.Wait = 8 * time.Second
			w.rules[pool] = rule
		}
	})
}

func holdStories() []ruleStory {
	return []ruleStory{
		{"an answer to one hold is none to another", lacking(cureNumber), func(w *world) string {
			w.at("d", "llm", "s", 1)
			w.at("e", "llm", "s", 1)
			w.graced()
			first, later := make(chan struct{}), make(chan struct{})
			w.set(func() {
				w.before = func(from, _ string, q question) <-chan struct{} {
					if from != "d" || q.ask != askHeld {
						return nil
					}
					if q.number == 1 {
						return first
					}
					return later
				}
			})
			move := make(chan bool, 1)
			go func() { move <- w.shift("e", "s", "llm-b2", 8*time.Second) }()
			w.wait(holdTime + 200*time.Millisecond) // the first is called off by now
			turn := w.must("d", "llm", "s", 1)
			r := w.node("a").router.desk.owner(1)
			w.until("another hold asks", func() bool { r.mu.Lock(); defer r.mu.Unlock(); return r.reign.numbered > 1 && len(r.reign.holds) > 0 })
			close(first)
			w.wait(100 * time.Millisecond)
			broken := ""
			if b, _ := w.node("a").machine.Get(w.key("llm", "s")); turn.Look() == nil && turn.Home().Backend != b.Backend || b.Backend == "llm-b2" {
				broken = "it moved beneath a turn, by an answer to the hold before"
			}
			turn.End()
			close(later)
			<-move
			return broken
		}},
		{"a turn is counted before its last look", lacking(cureCount), func(w *world) string {
			w.at("d", "llm", "s", 1)
			w.at("e", "llm", "s", 1)
			w.graced()
			turn := w.must("d", "llm", "s", 1)
			look := make(chan error, 1)
			go func() { look <- turn.Look() }()
			synctest.Wait()
			moved := w.shift("b", "s", "llm-b2", 900*time.Millisecond)
			err := <-look
			turn.End()
			if err == nil && moved {
				return "it moved beneath a turn that had looked"
			}
			return ""
		}},
		{"a turn looks again before it writes", lacking(cureLook), func(w *world) string {
			w.at("d", "llm", "s", 1)
			w.at("e", "llm", "s", 1)
			w.graced()
			turn := w.must("d", "llm", "s", 1)
			defer turn.End()
			w.pause("d")
			w.set(func() { w.dead["d"] = true })
			w.forgotten("a", "d")
			if !w.shift("e", "s", "llm-b2", 5*time.Second) {
				return "the session could not be moved"
			}
			w.resume("d")
			if turn.Look() == nil {
				return "a turn of a node that was stopped writes to a backend that the session has left"
			}
			return ""
		}},
		{"every holder is asked, lapsed lease or not", lacking(cureHolders), func(w *world) string {
			turn := w.must("d", "llm", "s", 1)
			w.at("e", "llm", "s", 1)
			w.graced()
			w.isolate("d", true)
			w.wait(2 * lease)
			moved := w.shift("e", "s", "llm-b2", 5*time.Second)
			w.isolate("d", false)
			turn.End()
			if moved {
				return "it moved beneath a turn of a node that is cut off"
			}
			return ""
		}},
		{"a session is let go by a hold", lacking(cureLetGo), func(w *world) string {
			w.set(func() {
				w.rules["llm"] = Rule{TTL: 3 * time.Second, Drain: time.Minute, Wait: 250 * time.Millisecond, Strict: true}
				w.filter = func(from, _ string, q question) bool { return from != "d" || q.ask != askUses } // reports are lost
			})
			turn := w.must("d", "llm", "s", 1)
			defer turn.End()
			w.wait(12 * time.Second)
			if _, ok := w.node("a").machine.Get(w.key("llm", "s")); !ok {
				return "it was let go beneath a turn"
			}
			return ""
		}},
		{"a hold that is proposed is not called off", lacking(cureOutcome), func(w *world) string {
			w.at("d", "llm", "s", 1)
			w.at("e", "llm", "s", 1)
			w.graced()
			w.set(func() { w.stalled = true })
			move := make(chan bool, 1)
			go func() { move <- w.shift("e", "s", "llm-b2", 8*time.Second) }()
			w.wait(holdTime + 300*time.Millisecond)
			started := w.starts("d", "s", "llm-b1")
			w.set(func() { w.stalled = false })
			if <-move && started {
				return "it moved beneath a turn that began when the hold was called off"
			}
			return ""
		}},
		{"a hold does not end in the feeds of another term", lacking(cureTermEnds), func(w *world) string {
			w.at("d", "llm", "s", 1)
			w.graced()
			o := w.node("a").router.desk.owner(1)
			o.mu.Lock()
			old := o.reign
			w.mu.Lock()
			w.term++ // a leads again, in another term
			w.mu.Unlock()
			o.reign = newReign(o, old.term+1)
			o.mu.Unlock()
			k := w.key("llm", "s")
			s := w.node("d").router.sections[0]
			w.until("d is in the new reign's section", func() bool { return s.head.Load().term > old.term })
			s.hold(w.node("d").router, item{kind: itemHold, shard: 1, number: 1, keys: []Key{k}}) // the new reign's first
			old.settle(&hold{number: 1, proposed: true, wants: map[Key]*want{k: {session: k, ended: make(chan struct{})}}})
			w.wait(50 * time.Millisecond)
			p := s.stripe(k)
			p.mu.Lock()
			defer p.mu.Unlock()
			if !p.isHeld(k) {
				return "the end of a hold of an old term ended one of the new"
			}
			p.live[k].free()
			return ""
		}},
	}
}

func answerStories() []ruleStory {
	// late holds back the answers to binds of d, and only those.
	late := func(w *world) (let func()) {
		gate := make(chan struct{})
		w.calm()
		w.set(func() {
			w.after = func(from, _ string, q question) <-chan struct{} {
				if from == "d" && q.ask == askBind {
					return gate
				}
				return nil
			}
		})
		return func() { w.set(func() { w.after = nil }); close(gate) }
	}
	return []ruleStory{
		{"an answer that crossed the feed's word is dropped", lacking(cureSilence), func(w *world) string {
			w.at("e", "llm", "s", 1)
			w.at("d", "llm", "other", 1) // d is a holder
			w.graced()
			let := late(w)
			home := make(chan Home, 1)
			go func() { home <- w.at("d", "llm", "s", 1) }()
			w.wait(100 * time.Millisecond)
			if !w.shift("e", "s", "llm-b2", 5*time.Second) {
				return "the session could not be moved"
			}
			let()
			if h := <-home; h.Backend != "llm-b2" {
				return "a turn goes by an answer of before the move"
			}
			return ""
		}},
		{"so is one that has seen less than the section's begin", lacking(cureGap), func(w *world) string {
			// Its feed breaks; its lease lapses, so that nobody waits for it; the session
			// moves; its feed opens anew: all while one answer is on its way.
			w.at("d", "chat", "other", 1)
			r := w.node("d").router
			k, section := w.key("chat", "s"), r.sections[0]
			p, h := section.stripe(k), *section.head.Load()
			p.mu.Lock()
			l := p.alive(k)
			l.asks++
			spoke := l.spoke
			p.mu.Unlock()
			late := answer{verdict: bound, incarnation: h.incarnation, term: h.term, index: h.index + 1, binding: Binding{"chat-b1", 1}}
			h.index += 2
			section.begin(r, h)
			kept := section.install(r, k, late, spoke)
			p.mu.Lock()
			defer p.mu.Unlock()
			l.asks--
			p.tidy(k, l)
			if kept {
				return "an answer of before the section is kept"
			}
			return ""
		}},
	}
}
