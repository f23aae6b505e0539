package shards

import (
	"context"
	"encoding/binary"
	"errors"
	"sync/atomic"
	"time"
)

const (
	renewEvery  = 300 * time.Millisecond // after the last was granted: a few times in a lease, so that one may be lost
	renewRest   = 50 * time.Millisecond  // after one that nobody granted
	renewFor    = 10 * time.Minute       // since a turn last wanted it
	renewIdle   = 10 * time.Second       // from then on: for as long as the node is a holder it must hear of holds
	idleRest    = time.Second            // and after one that nobody granted
	renewLook   = 50 * time.Millisecond
	followFor   = time.Minute // since a renewal was last asked of the node
	maxAsked    = 64          // renewals whose grants are waited for
	feedBacklog = 1024
)

// follower keeps the feed of one leading node.
type follower struct {
	r      *Router
	node   string
	life   atomic.Uint64 // of the feed: what an earlier one brings is of before
	ctx    context.Context
	end    context.CancelFunc
	wanted time.Duration // when it last was; Router.mu guards it
}

// renewLoop keeps the leases of the shards whose sessions have turns here, and asks
// now and then for those of shards whose sessions had: a holder that cannot be asked
// would hold up every change, and has no lease most of the time. Where
// that is wanted it begins with all, so that the first turns need not wait.
func (r *Router) renewLoop() {
	if r.Eager && len(r.Rules.Sets()) > 0 {
		for _, s := range r.sections {
			s.wanted.Store(int64(r.Now()))
		}
	}
	tick := time.NewTicker(renewLook)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-r.wake:
		case <-r.ctx.Done():
			return
		}
		now := r.Now()
		r.notice(now)
		r.unfollow(now)
		for _, s := range r.sections {
			if s.wanted.Load() != 0 && s.due(now) {
				r.begin(func() { r.renew(s) })
			}
		}
	}
}

// hurry has a section renewed at once.
func (r *Router) hurry(s *section) {
	s.mu.Lock()
	s.next = min(s.next, r.Now())
	s.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// due says whether a renewal is, and takes it.
func (s *section) due(now time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy || now < s.next {
		return false
	}
	s.busy = true
	return true
}

// renew asks the leader, as far as it is known, for the lease. The lease is
// counted from here: whatever the question meets on its way shortens it.
func (r *Router) renew(s *section) {
	all := r.candidates(s.shard)
	if len(all) == 0 {
		s.renewed(r.Now()+renewRest, false)
		return
	}
	s.mu.Lock()
	node := all[s.tries%len(all)]
	s.number++
	number := s.number
	if len(s.asked) >= maxAsked {
		clear(s.asked)
	}
	s.asked[number] = r.Now()
	s.mu.Unlock()
	a, err := r.beg(node, question{ask: askRenew, shard: s.shard, number: number})
	now := r.Now()
	every, rest := renewEvery, renewRest
	if now-time.Duration(s.wanted.Load()) > renewFor {
		every, rest = renewIdle, idleRest
	}
	switch {
	case err == nil && a.verdict == done:
		s.renewed(now+every, true)
	case err == nil && a.verdict == noFeed: // it is being opened, and says so
		s.renewed(now+renewRest, true)
	default:
		s.renewed(now+rest, false)
	}
}

// beg asks a node for a lease, or whom it names.
func (r *Router) beg(node string, q question) (a answer, err error) {
	for range 2 {
		r.follow(node)
		a, err = r.put(r.ctx, node, q)
		if err != nil || a.verdict != elsewhere || a.leader == "" || a.leader == node {
			break
		}
		node = a.leader
	}
	if err == nil && (a.verdict == done || a.verdict == noFeed) {
		r.hint(q.shard, node)
	}
	return a, err
}

func (s *section) renewed(next time.Duration, answered bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy, s.next = false, next
	if s.tries++; answered {
		s.tries = 0
	}
}

// follow opens the feed of a node, if it is not open.
func (r *Router) follow(node string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopped {
		return
	}
	if f := r.follows[node]; f != nil {
		f.wanted = r.Now()
		return
	}
	ctx, end := context.WithCancel(r.ctx)
	f := &follower{r: r, node: node, ctx: ctx, end: end, wanted: r.Now()}
	r.follows[node] = f
	r.tasks.Go(func() {
		defer end()
		to := Reader{Open: f.open, Take: f.take, Lost: func(error) {}}
		if node == r.Node && !r.away.Load() {
			r.followSelf(ctx, to)
		} else if r.Feeds != nil {
			r.Feeds.Follow(ctx, node, FeedService, to)
		}
	})
}

// unfollow ends the feeds that nothing was asked of for a while: those of nodes
// that lead nothing any more, or are gone.
func (r *Router) unfollow(now time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for node, f := range r.follows {
		if now-f.wanted > followFor {
			f.end()
			delete(r.follows, node)
		}
	}
}

// open is a feed's opening message, and begins another life of it.
func (f *follower) open() []byte {
	f.life.Store(f.r.lives.Add(1)) // no two are alike, of whichever follower
	return binary.BigEndian.AppendUint64([]byte{codeVersion}, f.r.Boot)
}

var errBehind = errors.New("the reader does not keep up")

// followSelf is the feed of a node to itself: a leader's own node is a holder like
// any other.
func (r *Router) followSelf(ctx context.Context, to Reader) {
	for ctx.Err() == nil {
		ctx, cut := context.WithCancel(ctx)
		messages := make(chan []byte, feedBacklog)
		served := make(chan struct{})
		opening := to.Open()
		r.begin(func() {
			defer close(served)
			_ = r.desk.serve(ctx, r.Node, opening, func(m []byte) error {
				select {
				case messages <- m:
					return nil
				default:
					return errBehind
				}
			})
		})
		r.takeAll(ctx, messages, served, to)
		cut()
	}
}

func (r *Router) takeAll(ctx context.Context, messages <-chan []byte, served <-chan struct{}, to Reader) {
	for {
		select {
		case m := <-messages:
			if to.Take(m) != nil {
				return
			}
		case <-served:
			return
		case <-ctx.Done():
			return
		}
	}
}

// take takes one message of a feed, in order.
func (f *follower) take(message []byte) error {
	items, err := decodeItems(message)
	if err != nil {
		return err
	}
	if len(items) == 0 { // it is open: who waits for that asks again
		for _, s := range f.r.sections {
			if s.wanted.Load() != 0 && !s.leased(f.r.Now()) {
				f.r.hurry(s)
			}
		}
	}
	for _, i := range items {
		if i.shard >= 1 && int(i.shard) <= len(f.r.sections) {
			f.one(f.r.sections[i.shard-1], i)
		}
	}
	return nil
}

// one takes an item, if it is of the section that the node is in.
func (f *follower) one(s *section, i item) {
	s.order.Lock() // the feeds of an old and a new leader may both be open
	defer s.order.Unlock()
	r, life := f.r, f.life.Load()
	if i.kind == itemBegin {
		if f.ctx.Err() != nil {
			return // another may follow that node by now, whose section nobody would begin again
		}
		s.begin(r, head{node: f.node, life: life, incarnation: i.incarnation, term: i.term, index: i.index})
		return
	}
	h := s.head.Load()
	if h.node != f.node || h.life != life {
		return
	}
	switch i.kind {
	case itemHold:
		busy := s.hold(r, i)
		r.note(s, question{ask: askHeld, number: i.number, keys: busy})
	case itemRelease:
		s.release(i)
	case itemChange:
		s.learn(r, i, h.gen)
	case itemGrant:
		s.grant(r, i.number)
		if s.remade.CompareAndSwap(true, false) {
			r.begin(func() { r.reassert(s) })
		}
	}
}

// note tells the leader of a section something that needs no answer. It is tried
// twice: what is lost costs the leader time, never safety.
func (r *Router) note(s *section, q question) {
	h := s.head.Load()
	if h.node == "" {
		return
	}
	q.shard, q.incarnation, q.term = s.shard, h.incarnation, h.term
	r.begin(func() {
		for range 2 {
			if a, err := r.put(r.ctx, h.node, q); err == nil && a.verdict == done || r.ctx.Err() != nil {
				return
			}
		}
	})
}
