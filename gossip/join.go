package gossip

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/starling-lb/starling/proxy/backend"
)

// joining is what is known of ways into the cluster. Only joinLoop and saveLoop
// use it, each its own part.
type joining struct {
	mu    sync.Mutex
	known []acquaintance  // whom to look for, newest first
	said  map[string]word // what was last said of a seed
}

// word is what came of asking a seed.
type word struct {
	fault string // "": it answered
	at    time.Time
}

const (
	askAtOnce = 8 // seeds at a time
	askFor    = 10 * time.Second
	saidAgain = 12 // tries after which a seed that does not answer is spoken of again

	// How old a process is while it asks members as well.
	settlesAt, settlesFor = reclaim, 30 * time.Second
)

// joinLoop looks for the others for ever: first all seeds and all it knew, with
// growing pauses, until somebody is there; then, every few seconds, one member
// that is gone and one seed that is nobody's address. memberlist itself never
// heals a split.
func (c *Cluster) joinLoop(ctx context.Context) {
	pause, began := c.pace.firstRetry, time.Now()
	for try := 0; ctx.Err() == nil; try++ {
		alone := len(c.members.peers.Load().list) == 0
		switch {
		case alone:
			c.askAll(ctx, try)
		case try > 0:
			c.askMissing(ctx, try, time.Since(began))
		}
		if len(c.members.peers.Load().list) > 0 && pause >= c.pace.lastRetry/4 {
			pause = c.pace.rejoin
		}
		select {
		case <-time.After(jitter(pause)):
		case <-ctx.Done():
		}
		pause = min(2*pause, c.pace.lastRetry)
	}
}

// settleLoop exchanges states with somebody soon after others came, and once
// more: of many broadcasts at once each node misses a few, and memberlist's own
// next exchange is half a minute away.
func (c *Cluster) settleLoop(ctx context.Context) {
	for {
		select {
		case <-c.arrived:
		case <-ctx.Done():
			return
		}
		for _, pause := range []time.Duration{400 * time.Millisecond, time.Second} {
			select {
			case <-time.After(jitter(pause)):
			case <-ctx.Done():
				return
			}
			if list := c.members.peers.Load().list; len(list) > 0 {
				_ = c.exchange(list[rand.IntN(len(list))].addr) // another will do
			}
		}
	}
}

// jitter keeps nodes that started together from asking together.
func jitter(d time.Duration) time.Duration { return d*4/5 + rand.N(d*2/5+1) }

// askAll asks every seed and everyone we knew.
func (c *Cluster) askAll(ctx context.Context, try int) {
	asked := slices.Clone(c.cfg.Seeds)
	for _, k := range c.acquaintances() {
		asked = append(asked, k.Address)
	}
	slices.Sort(asked)
	asked = slices.Compact(asked)
	places := make(chan struct{}, askAtOnce)
	var all sync.WaitGroup
	for _, address := range asked {
		places <- struct{}{}
		all.Go(func() {
			c.ask(ctx, address, try)
			<-places
		})
	}
	all.Wait()
}

// askMissing asks one that we knew and that is gone, and one seed at which
// nobody alive is.
func (c *Cluster) askMissing(ctx context.Context, try int, age time.Duration) {
	here := map[string]bool{c.net.self.String(): true}
	for _, p := range c.members.peers.Load().list {
		here[p.addr] = true
	}
	var gone []string
	for _, k := range c.acquaintances() {
		if !here[k.Address] {
			gone = append(gone, k.Address)
		}
	}
	if list := c.members.peers.Load().list; age > settlesAt && age < settlesFor && len(list) > 0 {
		// Who comes back at another address is believed once the old one is dead for
		// some seconds, and by then has said all that it says by itself.
		_ = c.exchange(list[rand.IntN(len(list))].addr) // the next try is with another
	}
	if len(gone) > 0 {
		c.ask(ctx, gone[rand.IntN(len(gone))], try)
	}
	seeds := slices.DeleteFunc(slices.Clone(c.cfg.Seeds), func(s string) bool { return here[s] })
	if len(seeds) > 0 {
		c.ask(ctx, seeds[rand.IntN(len(seeds))], try)
	}
}

// ask tries to join by an address, and says what came of it.
func (c *Cluster) ask(ctx context.Context, address string, try int) {
	ctx, cancel := context.WithTimeout(ctx, askFor)
	defer cancel()
	err := c.join(ctx, address)
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return // we stop
	}
	c.count.joins[boolIndex(err == nil)].Add(1)
	text := ""
	if err != nil {
		text = err.Error()
	}
	if c.joining.isNew(address, text) || err != nil && try%saidAgain == 0 {
		c.sayAsked(address, err)
	}
}

func boolIndex(b bool) int {
	if b {
		return 1
	}
	return 0
}

// isNew tells whether this was not what was said of the seed last.
func (j *joining) isNew(address, text string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.said == nil || len(j.said) > knownEntries+maxSeeds {
		j.said = map[string]word{}
	}
	was, ever := j.said[address]
	j.said[address] = word{text, time.Now()}
	return !ever || was.fault != text
}

// Unheard are the seeds that did not answer when they were asked last, or were not
// asked yet, and at which no member lives: that one is not asked, and may have come by
// itself. This node, named as one, is none of them, also where its name has other
// addresses of this host. An answer from before a member was lost does not count:
// whoever gave it may be on the other side of a split.
func (c *Cluster) Unheard() (seeds []string) {
	here, lost := c.present()
	c.joining.mu.Lock()
	defer c.joining.mu.Unlock()
	for _, s := range c.cfg.Seeds {
		if w, asked := c.joining.said[s]; !here[s] && (!asked || w.fault != "" || w.at.Before(lost)) {
			seeds = append(seeds, s)
		}
	}
	return seeds
}

// present is where members are that live, this one too, and when one was lost last.
func (c *Cluster) present() (here map[string]bool, lost time.Time) {
	here = make(map[string]bool)
	for _, m := range c.members.list() {
		switch {
		case m.Self || m.State != backend.MemberDead && m.State != backend.MemberLeft:
			here[m.Address.String()] = true
		case m.Since.After(lost):
			lost = m.Since
		}
	}
	return here, lost
}

func (c *Cluster) sayAsked(address string, err error) {
	var dns *net.DNSError
	var r *refusal
	switch {
	case err == nil:
		c.log.Info("joined by", "seed", address)
	case errors.As(err, &dns) && dns.IsNotFound:
		c.log.Warn("seed has a name that nobody knows; look for a typing error in cluster.seeds. Asking on", "seed", address, "err", err)
	case errors.As(err, &dns):
		c.log.Warn("seed's name cannot be looked up now; see whether the name server answers, and for a typing error in cluster.seeds. Asking on", "seed", address, "err", err)
	case errors.As(err, &r):
		c.log.Warn("seed refuses this node. Asking on", "seed", address, "err", err)
	case errors.Is(err, syscall.ECONNREFUSED):
		c.log.Info("nobody at seed yet. Asking on", "seed", address)
	default:
		c.log.Warn("seed does not answer. Asking on", "seed", address, "err", err)
	}
}

// join exchanges states with every address of a seed, other than our own. Where the
// name is ours, what its other addresses on this host answer says nothing: we may not
// listen there.
func (c *Cluster) join(ctx context.Context, address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("seed %s: %w", address, err)
	}
	addrs, err := c.resolve(ctx, host)
	if err != nil {
		return fmt.Errorf("seed %s: %w", address, err)
	}
	ours := slices.ContainsFunc(addrs, func(a netip.Addr) bool { return net.JoinHostPort(a.String(), port) == c.net.self.String() })
	err = nil
	joined := false
	for _, a := range addrs {
		at := net.JoinHostPort(a.String(), port)
		if at == c.net.self.String() || ctx.Err() != nil {
			continue
		}
		switch e := c.exchange(at); {
		case e == nil:
			joined = true
		case !ours || !ofThisHost(a):
			err = errors.Join(err, e)
		}
	}
	if joined {
		return nil
	}
	return err
}

// ofThisHost tells whether an address is one of this machine's.
func ofThisHost(a netip.Addr) bool {
	if a.IsLoopback() {
		return true
	}
	all, _ := net.InterfaceAddrs() // what cannot be listed is another's
	return slices.ContainsFunc(all, func(have net.Addr) bool {
		p, err := netip.ParsePrefix(have.String())
		return err == nil && p.Addr().Unmap() == a.Unmap()
	})
}

// exchange joins by one address. memberlist gives its errors as text only, so
// the transport's own is kept on the way.
func (c *Cluster) exchange(at string) error {
	c.net.takeFault(at)
	_, err := c.list.Join([]string{at})
	if err == nil {
		return nil
	}
	return cmp.Or(c.net.takeFault(at), err)
}

// resolve turns a host into addresses, each time anew.
func (c *Cluster) resolve(ctx context.Context, host string) ([]netip.Addr, error) {
	if a, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{a.Unmap()}, nil
	}
	found, err := c.opt.Resolve(ctx, host)
	if err != nil {
		return nil, err
	}
	for i, a := range found {
		found[i] = a.Unmap()
	}
	// IPv4 first, as the seeds' ports mostly are.
	slices.SortStableFunc(found, func(a, b netip.Addr) int { return cmp.Compare(a.BitLen(), b.BitLen()) })
	if len(found) == 0 {
		return nil, fmt.Errorf("%s has no address", host)
	}
	return found, nil
}

// acquaintances is whom to look for: the members of now, and those of before
// that are not among them.
func (c *Cluster) acquaintances() []acquaintance {
	c.joining.mu.Lock()
	defer c.joining.mu.Unlock()
	return slices.Clone(c.joining.known)
}

// saveLoop keeps the file of whom we know, so that a restart finds the others
// also where the seeds are gone.
func (c *Cluster) saveLoop(ctx context.Context) {
	for {
		select {
		case <-time.After(c.pace.save):
		case <-ctx.Done():
			return
		}
		known, changed := c.joining.renew(c.Members(), time.Now())
		if !changed {
			continue
		}
		if err := saveKnown(c.opt.Dir, known); err != nil {
			c.log.Warn("whom this node knows could not be written; a restart will have only the seeds", "err", err)
		}
	}
}

// renew lays the members of now over whom we knew. Those that left are
// forgotten, those that died are looked for.
func (j *joining) renew(now []Member, at time.Time) (known []acquaintance, changed bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	byID := map[string]acquaintance{}
	for _, k := range j.known {
		if at.Sub(k.Seen) < knownFor {
			byID[k.ID] = k
		}
	}
	for _, m := range now {
		switch {
		case m.Self:
		case m.State == "left":
			delete(byID, m.ID)
		case m.State != "dead":
			k := acquaintance{m.ID, m.Address.String(), at.Round(0)}
			if old, ok := byID[m.ID]; ok && old.Address == k.Address && at.Sub(old.Seen) < time.Hour {
				k.Seen = old.Seen // not worth a write
			}
			byID[m.ID] = k
		}
	}
	known = slices.SortedFunc(maps.Values(byID), func(a, b acquaintance) int {
		return cmp.Or(b.Seen.Compare(a.Seen), cmp.Compare(a.ID, b.ID))
	})
	known = known[:min(len(known), knownEntries)]
	changed = !slices.Equal(known, j.known)
	j.known = known
	return known, changed
}
