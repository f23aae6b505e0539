package proxy

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"slices"
	"sync"
	"time"
)

// A client that comes back by TLS shows a ticket, and is spared a signature and, by
// TLS 1.2, a round trip. Who has the key of a ticket can read and make it: the keys are
// secrets. They are drawn here rather than by package crypto/tls, which does the same
// and shows them to nobody, so that the next process of this node knows tickets of this
// one.

const (
	ticketEvery = 24 * time.Hour     // from then on tickets are made by another key
	ticketLasts = 7 * 24 * time.Hour // so long tickets of a key are taken
	maxTickets  = 8                  // keys that are in use
)

// TicketKey is one of those that a listener's tickets are made by.
type TicketKey struct {
	Key  []byte    `json:"key"` // 32 bytes
	Made time.Time `json:"made"`
}

// Tickets are the keys of one listener, the newest first.
type Tickets struct {
	Listener string      `json:"listener"` // its address in the configuration
	Files    []byte      `json:"files"`    // hash of its certificates: no ticket outlives a change of them
	Keys     []TicketKey `json:"keys"`
}

// tickets are the keys in use.
type tickets struct {
	mu     sync.Mutex // guards what follows
	config *tls.Config
	files  [sha256.Size]byte
	keys   []TicketKey
}

// begin draws a key for a configuration that nobody uses yet.
func (t *tickets) begin(config *tls.Config, files [sha256.Size]byte, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.config, t.files, t.keys = config, files, []TicketKey{newTicketKey(now)}
	t.use()
}

func newTicketKey(now time.Time) TicketKey {
	k := make([]byte, 32)
	_, _ = rand.Read(k) // it cannot fail
	return TicketKey{Key: k, Made: now}
}

// turn draws another key when it is time, and lets go of the oldest.
func (t *tickets) turn(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.config == nil || len(t.keys) > 0 && now.Sub(t.keys[0].Made) < ticketEvery {
		return
	}
	t.keys = slices.Insert(t.keys, 0, newTicketKey(now))
	t.prune(now)
	t.use()
}

// prune lets go of keys that are too old, and too many; mu is held.
func (t *tickets) prune(now time.Time) {
	t.keys = slices.DeleteFunc(t.keys, func(k TicketKey) bool { return now.Sub(k.Made) > ticketLasts })
	t.keys = t.keys[:min(len(t.keys), maxTickets)]
}

// use has the keys in force; mu is held.
func (t *tickets) use() {
	var all [][32]byte
	for _, k := range t.keys {
		all = append(all, [32]byte(k.Key))
	}
	t.config.SetSessionTicketKeys(all)
}

// leave is what another process needs to know the tickets.
func (t *tickets) leave(listener string) Tickets {
	t.mu.Lock()
	defer t.mu.Unlock()
	return Tickets{Listener: listener, Files: bytes.Clone(t.files[:]), Keys: slices.Clone(t.keys)}
}

// take adds keys of another process, which makes tickets as well, and tells how many
// it took: none where its certificates are others.
func (t *tickets) take(from Tickets, now time.Time) (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.config == nil || !bytes.Equal(from.Files, t.files[:]) {
		return 0
	}
	var keys []TicketKey
	for _, k := range from.Keys[:min(len(from.Keys), maxTickets)] {
		if k.Made.After(now) {
			k.Made = now // the clock was set back: or it would be in use for as much longer
		}
		if len(k.Key) == 32 && now.Sub(k.Made) <= ticketLasts {
			keys = append(keys, k)
		}
	}
	if len(keys) == 0 {
		return 0
	}
	t.keys = keys // the own one has made no ticket yet
	t.use()
	return len(keys)
}

// Tickets are the keys of all listeners with TLS.
func (s *Server) Tickets() (all []Tickets) {
	for _, l := range s.now.Load().listeners {
		if k := l.gate.Load().keys; k != nil {
			all = append(all, k.tickets.leave(l.named))
		}
	}
	return all
}

// TakeTickets has the listeners know the tickets of the process before, and tells how
// many keys they took. It comes before Start.
func (s *Server) TakeTickets(all []Tickets, now time.Time) (n int) {
	left := slices.Clone(all)
	for _, l := range s.now.Load().listeners {
		k := l.gate.Load().keys
		at := slices.IndexFunc(left, func(t Tickets) bool { return t.Listener == l.named })
		if k == nil || at < 0 {
			continue
		}
		n += k.tickets.take(left[at], now)
		left = slices.Delete(left, at, at+1) // several may have port 0
	}
	return n
}
