package shards

import (
	"encoding/binary"
	"fmt"
)

// A feed's message, integers big-endian, text with a length byte before it:
// version u8, then items to its end. An item is kind u8, shard u32, and
//
//	begin:   incarnation u32, term u64, index u64
//	hold:    number u64, idle u32, count u16 and that many keys of 16
//	release: number u64, count u16 and that many keys of 16
//	change:  index u64, session 16, epoch u32, backend
//	grant:   number u64
//
// A message without items says that the feed is open.

type itemKind uint8

const (
	itemBegin   itemKind = iota + 1 // the shard's section begins anew: what was known of it is last known
	itemHold                        // start no turn of keys, and say which are busy
	itemRelease                     // hold number is over for keys
	itemChange                      // a binding that stood changed; backend "": it was let go, at epoch
	itemGrant                       // the lease, from the moment at which question number was asked
)

// maxMessage is where a message is cut: a feed takes 1 MiB at most.
const maxMessage = 64 << 10

type item struct {
	kind        itemKind
	shard       uint32
	incarnation uint32
	term, index uint64
	number      uint64
	idle        uint32 // ms: held only if it had no turn for so long
	keys        []Key
	session     Key
	binding     Binding
}

func (i item) append(b []byte) []byte {
	b = append(b, byte(i.kind))
	b = binary.BigEndian.AppendUint32(b, i.shard)
	switch i.kind {
	case itemBegin:
		b = binary.BigEndian.AppendUint32(b, i.incarnation)
		b = binary.BigEndian.AppendUint64(b, i.term)
		b = binary.BigEndian.AppendUint64(b, i.index)
	case itemHold:
		b = binary.BigEndian.AppendUint64(b, i.number)
		b = appendKeys(binary.BigEndian.AppendUint32(b, i.idle), i.keys)
	case itemRelease:
		b = appendKeys(binary.BigEndian.AppendUint64(b, i.number), i.keys)
	case itemChange:
		b = binary.BigEndian.AppendUint64(b, i.index)
		b = append(b, i.session[:]...)
		b = binary.BigEndian.AppendUint32(b, uint32(i.binding.Epoch))
		b = appendText(b, i.binding.Backend)
	case itemGrant:
		b = binary.BigEndian.AppendUint64(b, i.number)
	}
	return b
}

// encodeItems cuts items into messages.
func encodeItems(items []item) (messages [][]byte) {
	b := []byte{codeVersion}
	for _, i := range items {
		if len(b) > maxMessage {
			messages = append(messages, b)
			b = []byte{codeVersion}
		}
		b = i.append(b)
	}
	return append(messages, b)
}

func decodeItems(b []byte) (items []item, err error) {
	r := reader{rest: b}
	version := r.byte()
	for version == codeVersion && !r.short && len(r.rest) > 0 {
		i, ok := r.item()
		if !ok {
			return nil, fmt.Errorf("feed's message %w: item %d is of kind %d", errCode, len(items), i.kind)
		}
		items = append(items, i)
	}
	return items, r.done("feed's message", version)
}

func (r *reader) item() (i item, ok bool) {
	i = item{kind: itemKind(r.byte()), shard: r.uint32()}
	switch i.kind {
	case itemBegin:
		i.incarnation, i.term, i.index = r.uint32(), r.uint64(), r.uint64()
	case itemHold:
		i.number, i.idle, i.keys = r.uint64(), r.uint32(), r.keys()
	case itemRelease:
		i.number, i.keys = r.uint64(), r.keys()
	case itemChange:
		i.index, i.session = r.uint64(), r.key()
		i.binding.Epoch, i.binding.Backend = Epoch(r.uint32()), r.text()
	case itemGrant:
		i.number = r.uint64()
	default:
		return i, false
	}
	return i, true
}

func (r *reader) uint64() uint64 { return binary.BigEndian.Uint64(r.take(8)) }
