package gossip

import (
	"encoding/binary"
	"time"

	"github.com/hashicorp/memberlist"
)

var _ memberlist.Delegate = (*Cluster)(nil)

// NodeMeta implements memberlist.Delegate.
func (c *Cluster) NodeMeta(limit int) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.self.encode()
	if len(b) > limit {
		panic("BUG: metadata larger than its bound")
	}
	return b
}

// NotifyMsg implements memberlist.Delegate: all that we broadcast is records.
func (c *Cluster) NotifyMsg(b []byte) {
	if err := c.learn(b); err != nil {
		c.journal.refused("a broadcast", err)
	}
}

// GetBroadcasts implements memberlist.Delegate.
func (c *Cluster) GetBroadcasts(overhead, limit int) [][]byte {
	return c.records.queue.GetBroadcasts(overhead, limit)
}

// What an exchange of states carries of ours: parts, each with its kind and
// length before it.
const (
	partChunk  = 1
	partRecord = 2
	maxState   = maxFrame / 2 // the rest is memberlist's
)

// LocalState implements memberlist.Delegate: all of this node's report, and
// every record.
func (c *Cluster) LocalState(bool) []byte {
	var b []byte
	add := func(kind byte, part []byte) {
		if len(b)+len(part)+6 <= maxState {
			b = append(binary.AppendUvarint(append(b, kind), uint64(len(part))), part...)
		}
	}
	if said := c.speaker.latest.Load(); said != nil {
		// Under the version of when they were looked at: what was said since is newer.
		at := func(full bool) chunk {
			return chunk{origin: markOf(c.opt.ID), boot: c.boot, seq: said.seq, full: full}
		}
		for _, ch := range fulls(speaking(said.entries), at) {
			add(partChunk, ch.encode())
		}
	}
	for _, r := range c.records.all() {
		add(partRecord, r)
	}
	return b
}

// MergeRemoteState implements memberlist.Delegate.
func (c *Cluster) MergeRemoteState(b []byte, _ bool) {
	now := time.Now()
	for len(b) > 0 {
		kind := b[0]
		size, n := binary.Uvarint(b[1:])
		if n <= 0 || size > uint64(len(b)-1-n) {
			c.journal.refused("an exchange", refuse(causeBroken, "its parts are cut"))
			return
		}
		part := b[1+n : 1+n+int(size)]
		b = b[1+n+int(size):]
		switch kind {
		case partChunk:
			_ = c.onReport(part, now) // of a stranger, or older than what we have
		case partRecord:
			_ = c.learn(part) // likewise
		}
	}
}
