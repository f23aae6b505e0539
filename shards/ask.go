package shards

import (
	"encoding/binary"
	"fmt"
	"slices"
)

// What nodes ask each other about shards, integers big-endian, text with a length
// byte before it:
//
//	question: version u8, ask u8, shard u32, session 16, seen u32, boot u64, elder u64, incarnation u32,
//	          term u64, number u64, flags u8, backend, count u16 and that many keys of 16
//	answer:   version u8, verdict u8, incarnation u32, term u64, index u64, epoch u32, backend, leader
//
// Every kind of question has all fields; most are zero in most.

// ask is what a node wants of a shard's leader, if nothing else is said.
type ask uint8

const (
	askBind    ask = iota + 1 // take what stands, or the proposal; with none: what stands
	askRead                   // what stands
	askApplied                // of any replica: what it has applied, proven or not
	askRebind                 // the bound backend cannot serve it, says the asker; seen is what it knows
	askMove                   // to backend, once no turn of it runs; "" lets it go
	askRenew                  // the lease; number comes back in the grant; keys are the older lives that live
	askHeld                   // the answer to hold number of term: all are idle but keys
	askIdle                   // keys, which were busy when a hold asked, are idle now
	askUses                   // keys had turns since the last report
	askLeave                  // no turn runs there any more and none will: the node is no holder
	askAssert                 // an earlier incarnation said that it is bound to backend, in the epoch seen
)

// MaxQuestion is how many bytes the longest question takes.
const MaxQuestion = 128 + maxName + 16*maxKeys

// maxKeys is how many keys a message names; what is longer is cut in parts.
const maxKeys = 4096

type question struct {
	ask         ask
	shard       uint32
	session     Key
	seen        Epoch
	boot        uint64 // of the asker: which life of its node it is
	elder       uint64 // the oldest one that lives; 0: none but the asker
	incarnation uint32
	term        uint64
	number      uint64
	unused      bool   // bind: the asker had no turn of it for a TTL
	heavy       bool   // rebind: to stay would cost more; never done at once
	backend     string // the proposal
	keys        []Key
}

func (q question) encode() []byte {
	b := append(make([]byte, 0, 64+len(q.backend)+16*len(q.keys)), codeVersion, byte(q.ask))
	b = binary.BigEndian.AppendUint32(b, q.shard)
	b = append(b, q.session[:]...)
	b = binary.BigEndian.AppendUint32(b, uint32(q.seen))
	b = binary.BigEndian.AppendUint64(b, q.boot)
	b = binary.BigEndian.AppendUint64(b, q.elder)
	b = binary.BigEndian.AppendUint32(b, q.incarnation)
	b = binary.BigEndian.AppendUint64(b, q.term)
	b = binary.BigEndian.AppendUint64(b, q.number)
	b = append(b, flag(q.unused, 1)|flag(q.heavy, 2))
	return appendKeys(appendText(b, q.backend), q.keys)
}

// maxElders is how many older lives a renewal names; of more it names the oldest.
const maxElders = 256

// live notes which older lives of the asker's node live. A renewal names each, as a
// key that begins with its boot: a program that does not know of that goes by elder.
func (q *question) live(boots []uint64) {
	if len(boots) == 0 {
		return
	}
	if q.elder = slices.Min(boots); q.ask != askRenew || len(boots) > maxElders {
		return
	}
	for _, boot := range boots {
		var k Key
		binary.BigEndian.PutUint64(k[:], boot)
		q.keys = append(q.keys, k)
	}
}

// living are the older lives that a renewal names; none: it goes by elder.
func (q question) living() (boots []uint64) {
	for _, k := range q.keys {
		boots = append(boots, binary.BigEndian.Uint64(k[:]))
	}
	return boots
}

func flag(on bool, bit byte) byte {
	if on {
		return bit
	}
	return 0
}

func decodeQuestion(b []byte) (question, error) {
	r := reader{rest: b}
	version := r.byte()
	q := question{ask: ask(r.byte()), shard: r.uint32(), session: r.key(), seen: Epoch(r.uint32()), boot: r.uint64(), elder: r.uint64(), incarnation: r.uint32(), term: r.uint64(), number: r.uint64()}
	flags := r.byte()
	q.unused, q.heavy = flags&1 != 0, flags&2 != 0
	q.backend, q.keys = r.text(), r.keys()
	err := r.done("question", version)
	if err == nil && (q.ask < askBind || q.ask > askAssert || flags > 3 || (q.ask == askRebind || q.ask == askAssert) && (q.backend == "" || q.seen == 0)) {
		err = fmt.Errorf("question %w: ask %d for backend %q, flags %d", errCode, q.ask, q.backend, flags)
	}
	return q, err
}

// verdict is how a node answers.
type verdict uint8

const (
	bound     verdict = iota + 1
	created           // bound, by this question
	unbound           // there is no binding
	elsewhere         // this node does not lead the shard; leader says who may, "" that nobody knows
	unknown           // it may have been done; ask again
	held              // a change is on its way; ask again
	full              // the shard takes no more sessions now
	detour            // it was rebound a moment ago: what stands stays, go around it this once
	done              // to a note: taken; to a renewal: the grant comes in the feed
	noFeed            // to a renewal: open the feed first
)

type answer struct {
	verdict     verdict
	incarnation uint32
	term        uint64 // proven, or that of the entry
	index       uint64 // of the last entry that the look has seen
	binding     Binding
	leader      string
}

func (a answer) encode() []byte {
	b := append(make([]byte, 0, 64), codeVersion, byte(a.verdict))
	b = binary.BigEndian.AppendUint32(b, a.incarnation)
	b = binary.BigEndian.AppendUint64(b, a.term)
	b = binary.BigEndian.AppendUint64(b, a.index)
	b = binary.BigEndian.AppendUint32(b, uint32(a.binding.Epoch))
	return appendText(appendText(b, a.binding.Backend), a.leader)
}

func decodeAnswer(b []byte) (answer, error) {
	r := reader{rest: b}
	version := r.byte()
	a := answer{verdict: verdict(r.byte()), incarnation: r.uint32(), term: r.uint64(), index: r.uint64()}
	a.binding.Epoch, a.binding.Backend, a.leader = Epoch(r.uint32()), r.text(), r.text()
	err := r.done("answer", version)
	stands := a.verdict == bound || a.verdict == created || a.verdict == detour
	if err == nil && (a.verdict < bound || a.verdict > noFeed || stands != (a.binding.Epoch > 0) || stands != (a.binding.Backend != "")) {
		err = fmt.Errorf("answer %w: verdict %d with epoch %d of %q", errCode, a.verdict, a.binding.Epoch, a.binding.Backend)
	}
	return a, err
}

func appendKeys(b []byte, keys []Key) []byte {
	if len(keys) > maxKeys {
		panic("BUG: too many keys for one message")
	}
	b = binary.BigEndian.AppendUint16(b, uint16(len(keys)))
	for _, k := range keys {
		b = append(b, k[:]...)
	}
	return b
}

// keys grows as they come: a count alone takes no memory.
func (r *reader) keys() []Key {
	n := int(binary.BigEndian.Uint16(r.take(2)))
	if n > maxKeys || len(r.rest) < 16*n {
		r.short, r.rest = true, nil
		return nil
	}
	if n == 0 {
		return nil
	}
	keys := make([]Key, n)
	for i := range keys {
		keys[i] = r.key()
	}
	return keys
}
