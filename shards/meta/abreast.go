package meta

import "time"

// breakTime is how long the leader of meta may be unheard of until that is a break: an
// election, and a report or two that are lost, are none.
const breakTime = time.Minute

// contact is a node's with the leader of meta; by the keeper's clock.
type contact struct {
	ever        bool
	since, last time.Duration // heard for the first time after a break, and for the last time
}

// heard notes that the leader of meta was heard.
func (c *contact) heard(now time.Duration) {
	if !c.ever || now-c.last > breakTime {
		c.since = now
	}
	c.ever, c.last = true, now
}

// lasts is how long it has been there without a break; 0: it is not there.
func (c *contact) lasts(now time.Duration) time.Duration {
	if !c.ever || now-c.last > breakTime {
		return 0
	}
	return now - c.since
}

// Abreast is for how long this node has heard what is agreed on, without a break of
// more than a minute; 0: it does not now.
func (k *Keeper) Abreast() time.Duration {
	now := k.o.Now()
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.abreast.lasts(now)
}

// met notes that the leader of meta was heard, or is this node.
func (k *Keeper) met() {
	now := k.o.Now()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.abreast.heard(now)
}
