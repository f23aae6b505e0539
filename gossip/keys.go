package gossip

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"
)

// KeyOrder is what the nodes are to do about a key.
type KeyOrder string

// The orders; the list is closed.
const (
	KeyList    KeyOrder = "list"
	KeyInstall KeyOrder = "install" // decrypts from then on
	KeyUse     KeyOrder = "use"     // encrypts from then on
	KeyRemove  KeyOrder = "remove"  // opens nothing any more
)

func keyOrders() []KeyOrder { return []KeyOrder{KeyList, KeyInstall, KeyUse, KeyRemove} }

// KeyAnswer is what one node said to an order. Keys are told by their marks,
// never themselves.
type KeyAnswer struct {
	ID, Name string
	Marks    []string // after it; the first encrypts
	Err      string   // empty: done
}

const (
	keysTimeout = 5 * time.Second // for one node's answer
	maxKeyText  = 512             // bytes of an answer's error
)

var errOrder = errors.New("order about keys is malformed")

// order is an order on the wire. It names the start of the node that it is for,
// and counts, so that a recorded one is good for nothing.
type order struct {
	what    KeyOrder
	forBoot uint64
	from    string
	boot    uint64
	seq     uint64
	key     []byte
}

func (o order) encode() []byte {
	b := []byte{1, byte(slices.Index(keyOrders(), o.what))}
	b = binary.AppendUvarint(b, o.forBoot)
	b = binary.AppendUvarint(b, o.boot)
	b = binary.AppendUvarint(b, o.seq)
	b = append(append(b, byte(len(o.from))), o.from...)
	return append(append(b, byte(len(o.key))), o.key...)
}

func decodeOrder(b []byte) (o order, err error) {
	if len(b) < 2 || b[0] != 1 || int(b[1]) >= len(keyOrders()) {
		return o, errOrder
	}
	o.what, b = keyOrders()[b[1]], b[2:]
	for _, into := range []*uint64{&o.forBoot, &o.boot, &o.seq} {
		v, n := binary.Uvarint(b)
		if n <= 0 {
			return o, errOrder
		}
		*into, b = v, b[n:]
	}
	from, b, err := cutText(b, maxName)
	if err != nil {
		return o, errOrder
	}
	key, b, err := cutText(b, 32)
	if err != nil || len(b) > 0 {
		return o, errOrder
	}
	o.from, o.key = string(from), key
	return o, nil
}

// cutText takes bytes with their length before them off b.
func cutText(b []byte, most int) (text, rest []byte, err error) {
	if len(b) < 1 || int(b[0]) > most || len(b) < 1+int(b[0]) {
		return nil, nil, io.ErrUnexpectedEOF
	}
	return b[1 : 1+b[0]], b[1+b[0]:], nil
}

// encode is the answer on the wire.
func (a KeyAnswer) encode() []byte {
	b := []byte{1, byte(len(a.Marks))}
	for _, m := range a.Marks {
		b = append(append(b, byte(len(m))), m...)
	}
	return append(b, a.Err[:min(len(a.Err), maxKeyText)]...)
}

func (a *KeyAnswer) decode(b []byte) error {
	if len(b) < 2 || b[0] != 1 || b[1] > maxKeys {
		return errOrder
	}
	n, b := b[1], b[2:]
	for range n {
		m, rest, err := cutText(b, 8)
		if err != nil {
			return errOrder
		}
		a.Marks, b = append(a.Marks, string(m)), rest
	}
	if len(b) > maxKeyText {
		return errOrder
	}
	a.Err = string(b)
	return nil
}

// Keys has every live node do something about a key, and says what each
// answered. A key is only used where all have it, and only removed where nobody
// encrypts with it: one that could not be asked stops both.
func (c *Cluster) Keys(ctx context.Context, what KeyOrder, key []byte) ([]KeyAnswer, error) {
	select {
	case <-c.started:
	default:
		return nil, errors.New("gossip has not started yet; ask again")
	}
	if !c.keys.enabled() {
		return nil, errUnkeyed
	}
	if what == KeyUse || what == KeyRemove {
		if err := c.mayRotate(ctx, what, key); err != nil {
			return nil, err
		}
	}
	return c.orderAll(ctx, what, key), nil
}

func (c *Cluster) mayRotate(ctx context.Context, what KeyOrder, key []byte) error {
	for _, a := range c.orderAll(ctx, KeyList, nil) {
		switch {
		case a.Err != "":
			return fmt.Errorf("node %s (%s) did not answer: %s; mend it or let it leave first", a.Name, a.ID, a.Err)
		case what == KeyUse && !slices.Contains(a.Marks, mark(key)):
			return fmt.Errorf("node %s (%s) does not have key %s; install it on every node first", a.Name, a.ID, mark(key))
		case what == KeyRemove && len(a.Marks) > 0 && a.Marks[0] == mark(key):
			return fmt.Errorf("node %s (%s) encrypts with key %s; use another first", a.Name, a.ID, mark(key))
		}
	}
	return nil
}

// orderAll asks all live nodes, this one first.
func (c *Cluster) orderAll(ctx context.Context, what KeyOrder, key []byte) []KeyAnswer {
	answers := []KeyAnswer{c.obey(what, key)}
	list := c.members.peers.Load().list
	others := make([]KeyAnswer, len(list))
	places := make(chan struct{}, askAtOnce)
	var all sync.WaitGroup
	for i, p := range list {
		places <- struct{}{}
		all.Go(func() {
			others[i] = c.orderOne(ctx, p, what, key)
			<-places
		})
	}
	all.Wait()
	return append(answers, others...)
}

func (c *Cluster) orderOne(ctx context.Context, p peer, what KeyOrder, key []byte) KeyAnswer {
	a := KeyAnswer{ID: p.id, Name: p.name}
	o := order{what: what, forBoot: p.boot, from: c.opt.ID, boot: c.boot, seq: c.orders.Add(1), key: key}
	body, err := c.net.request(ctx, p.addr, o.encode(), keysTimeout)
	if err == nil {
		err = a.decode(body)
	}
	if err != nil {
		a.Err = err.Error()
	}
	return a
}

// obey does what an order says on this node.
func (c *Cluster) obey(what KeyOrder, key []byte) KeyAnswer {
	a := KeyAnswer{ID: c.opt.ID, Name: c.opt.Self.Name}
	var err error
	switch what {
	case KeyInstall:
		err = c.keys.install(key)
	case KeyUse:
		err = c.keys.use(key)
	case KeyRemove:
		err = c.keys.remove(key)
	}
	if err != nil {
		a.Err = err.Error()
	}
	a.Marks = c.keys.marks()
	if what != KeyList {
		c.log.Info("order about a key", "order", what, "key", mark(key), "keys", a.Marks, "err", a.Err)
	}
	return a
}

// onKeys answers another node's order; nil: not at all.
func (c *Cluster) onKeys(body []byte) []byte {
	o, err := decodeOrder(body)
	if err != nil || !c.keys.enabled() {
		return nil
	}
	var p *peer
	for _, q := range c.members.peers.Load().list {
		if q.id == o.from {
			p = &q
		}
	}
	if p == nil || p.boot != o.boot || o.forBoot != c.boot || !c.orders.isNext(o) {
		return KeyAnswer{Err: "the order is not for this node now, or from no member; ask again"}.encode()
	}
	return c.obey(o.what, o.key).encode()
}

// orders counts ours, and remembers where the others' counts are.
type orders struct {
	mu   sync.Mutex
	ours uint64
	last map[string]uint64 // by member and start
}

func (o *orders) Add(n uint64) uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ours += n
	return o.ours
}

// isNext tells whether an order is newer than all of its node's before it.
func (o *orders) isNext(of order) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.last == nil {
		o.last = map[string]uint64{}
	}
	who := fmt.Sprint(of.from, " ", of.boot)
	if of.seq <= o.last[who] || o.last[who] == 0 && len(o.last) >= 4*maxGone {
		return false
	}
	o.last[who] = of.seq
	return true
}

// request sends one frame about keys and reads one.
func (t *transport) request(ctx context.Context, addr string, body []byte, timeout time.Duration) ([]byte, error) {
	s, err := t.dial(ctx, addr, timeout)
	if err != nil {
		return nil, err
	}
	defer s.Close() // read to its end, or broken
	if err := s.SetDeadline(time.Now().Add(timeout)); err != nil {
		return nil, err
	}
	if _, err := s.send(kindKeys, body); err != nil {
		return nil, err
	}
	k, answer, err := t.codec.readStream(raw{s})
	switch {
	case errors.Is(err, io.EOF):
		return nil, errors.New("it closed without an answer")
	case err != nil:
		return nil, err
	case k != kindKeys:
		return nil, refuse(causeBroken, "an answer has kind %d", k)
	}
	return answer, nil
}
