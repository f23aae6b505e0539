package transport

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// A connection begins with a hello and its reply, integers big-endian:
//
//	hello: "SLRP", lowest and highest version the caller speaks, u16 length, body
//	body:  cluster, wanted node, own node (u8 length and bytes each), kind u8,
//	       shard u32, incarnation u32, service, own address (u8 length and bytes each)
//	reply: "SLRP", version that both will use, code u8, u16 length, text
const (
	magic      = "SLRP"
	versionMin = 1 // the oldest that this program speaks
	versionMax = 1

	headSize = len(magic) + 4
	maxHello = 2048 // bytes of a body: five names and some numbers take 1289
	maxText  = 512  // bytes of a reply's text
)

type kind uint8

const (
	kindGroup kind = iota + 1 // Raft of one shard
	kindCall
	kindFeed
)

// hello is what the caller says first.
type hello struct {
	min, max uint8 // versions
	cluster  string
	to, from string // node ids
	kind     kind
	group    GroupID
	service  string // of a group: what tells the wanted replica from others of the node
	at       string // where the caller says it is reached; "": it does not know
}

var errHello = errors.New("not a hello of starling")

func (h hello) append(b []byte) []byte {
	b = append(b, magic...)
	b = append(b, h.min, h.max, 0, 0)
	for _, s := range []string{h.cluster, h.to, h.from} {
		b = appendName(b, s)
	}
	b = append(b, byte(h.kind))
	b = binary.BigEndian.AppendUint32(b, h.group.Shard)
	b = binary.BigEndian.AppendUint32(b, h.group.Incarnation)
	b = appendName(b, h.service)
	b = appendName(b, h.at)
	binary.BigEndian.PutUint16(b[headSize-2:], uint16(len(b)-headSize))
	return b
}

// appendName writes at most 255 bytes: names are checked where they come in.
func appendName(b []byte, s string) []byte {
	s = s[:min(len(s), 255)]
	return append(append(b, byte(len(s))), s...)
}

// readHello fails with errHello where the bytes are none of ours, and else
// returns as much as it understood: the refusal can then name it.
func readHello(r io.Reader) (hello, error) {
	head, body, err := readPart(r, maxHello)
	if err != nil {
		return hello{}, err
	}
	h := hello{min: head[0], max: head[1]}
	if h.max < versionMin || h.min > versionMax {
		return h, nil // its body may look different; the version is what is wrong
	}
	f := fields{rest: body}
	h.cluster, h.to, h.from = f.name(), f.name(), f.name()
	h.kind = kind(f.byte())
	h.group = GroupID{Shard: f.uint32(), Incarnation: f.uint32()}
	h.service = f.name()
	h.at = f.name()
	if f.short || len(f.rest) > 0 && h.max <= versionMax { // a newer one may say more
		return h, fmt.Errorf("%w: body of %d bytes", errHello, len(body))
	}
	return h, nil
}

// reply is what the other side says to it.
type reply struct {
	version uint8
	code    Code
	text    string
}

func (a reply) append(b []byte) []byte {
	text := a.text[:min(len(a.text), maxText)]
	b = append(b, magic...)
	b = append(b, a.version, byte(a.code))
	b = binary.BigEndian.AppendUint16(b, uint16(len(text)))
	return append(b, text...)
}

func readReply(r io.Reader) (reply, error) {
	head, text, err := readPart(r, maxText)
	if err != nil {
		return reply{}, err
	}
	return reply{version: head[0], code: Code(head[1]), text: string(text)}, nil
}

// readPart reads what hello and reply have in common: the magic, two bytes, a
// length and that many bytes. It reads not one byte more.
func readPart(r io.Reader, limit int) (two [2]byte, body []byte, err error) {
	var head [headSize]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return two, nil, err
	}
	n := int(binary.BigEndian.Uint16(head[headSize-2:]))
	if string(head[:len(magic)]) != magic || n > limit {
		return two, nil, fmt.Errorf("%w: it begins with %q", errHello, head[:])
	}
	body = make([]byte, n)
	_, err = io.ReadFull(r, body)
	return [2]byte(head[len(magic):]), body, err
}

// fields takes a body apart; short is set, and zeros come, where it ended early.
type fields struct {
	rest  []byte
	short bool
}

func (f *fields) take(n int) []byte {
	if len(f.rest) < n {
		f.short, f.rest = true, nil
		return nil
	}
	b := f.rest[:n]
	f.rest = f.rest[n:]
	return b
}

func (f *fields) byte() byte {
	if b := f.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (f *fields) uint32() uint32 {
	if b := f.take(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

func (f *fields) name() string { return string(f.take(int(f.byte()))) }
