package gossip

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
)

// memberlist v0.6.0 trusts what it can decrypt: it unpacks compressed messages
// without a limit, allocates what a header claims, and indexes into version
// vectors that may be short. So it is given no keys: the transport decrypts,
// and the guard lets through only what memberlist itself would have written.
// On its way it notes what memberlist does not tell: who is suspected, and who
// left rather than died.

// The types of memberlist's messages.
const (
	msgPing = iota
	msgIndirectPing
	msgAck
	msgSuspect
	msgAlive
	msgDead
	msgPushPull
	msgCompound
	msgUser
	msgCompressed
	msgEncrypted
	msgNack
	msgCRC
	msgErr
)

const (
	maxName  = 64   // bytes of a node's id
	maxMeta  = 512  // memberlist's own limit
	maxNodes = 4096 // in one exchange of states

	checksumSize = 5 // that memberlist adds to packets beyond the size that it is told

	// versions is the only vector that a memberlist of ours writes: what it can
	// speak and speaks, of its protocol, then of the delegate's. One node that
	// claims to need more would have all others refuse every exchange.
	versions = "\x01\x05\x02\x00\x00\x00"
)

// The states of a node as memberlist writes them.
const (
	wireAlive = iota
	wireSuspect
	wireDead
	wireLeft
)

// sighting is what a message says of a node.
type sighting struct {
	node        string
	incarnation uint64
	state       int
	meta        []byte // of a node that is alive
	from        string // address that was dialed for it; empty: it came by itself
}

// guard checks messages; seen hears of states, in and out, and may refuse one,
// pinged hears of the numbers of pings.
type guard struct {
	seen   func(sighting) error
	pinged func(seq uint64)
	dialed string // address whose answers are checked; empty: whatever comes
}

// packet checks the body of a datagram.
func (g guard) packet(b []byte) error {
	if len(b) >= 5 && b[0] == msgCRC {
		if binary.BigEndian.Uint32(b[1:]) != crc32.ChecksumIEEE(b[5:]) {
			return refuse(causeBroken, "its checksum is wrong")
		}
		b = b[5:]
	}
	if len(b) == 0 || b[0] != msgCompound {
		return g.single(b)
	}
	return g.compound(b[1:])
}

func (g guard) compound(b []byte) error {
	if len(b) < 1 || len(b) < 1+2*int(b[0]) {
		return refuse(causeBroken, "it is cut within a compound")
	}
	sizes, rest := b[1:1+2*int(b[0])], b[1+2*int(b[0]):]
	for ; len(sizes) > 0; sizes = sizes[2:] {
		n := int(binary.BigEndian.Uint16(sizes))
		if n > len(rest) {
			return refuse(causeBroken, "it is cut within a compound")
		}
		if err := g.single(rest[:n]); err != nil {
			return err
		}
		rest = rest[n:]
	}
	if len(rest) > 0 {
		return refuse(causeBroken, "it has bytes after its end")
	}
	return nil
}

// single checks a message that holds no others.
func (g guard) single(b []byte) error {
	if len(b) == 0 {
		return refuse(causeBroken, "it is empty")
	}
	switch b[0] {
	case msgPing, msgIndirectPing, msgAck, msgNack, msgSuspect, msgAlive, msgDead:
		return g.fields(b[0], b[1:])
	case msgUser:
		return nil // ours: the records' decoder looks at it
	case msgCompressed:
		return refuse(causeCompressed, "")
	}
	return refuse(causeBroken, "it has type %d", b[0])
}

func (g guard) fields(typ byte, b []byte) error {
	fields, rest, err := readFields(b)
	if err != nil || len(rest) > 0 {
		return refuse(causeBroken, "%v", errShape)
	}
	return g.node(typ, fields)
}

// node checks the fields of one message, or of one node in an exchange.
func (g guard) node(typ byte, fields []field) error {
	s := sighting{state: wireAlive, from: g.dialed}
	from, versioned := "", false
	for _, f := range fields {
		bad := false
		switch f.name {
		case "Node", "Name", "SourceNode", "From":
			bad = f.isNum || !isID(f.bytes)
			if f.name == "From" {
				from = string(f.bytes)
			} else if f.name != "SourceNode" {
				s.node = string(f.bytes)
			}
		case "Addr", "Target", "SourceAddr":
			bad = f.isNum || len(f.bytes) != 0 && len(f.bytes) != 4 && len(f.bytes) != 16
		case "Meta":
			s.meta, bad = f.bytes, f.isNum || len(f.bytes) > maxMeta
		case "Payload":
			bad = f.isNum || len(f.bytes) > maxMeta
		case "Vsn":
			versioned, bad = true, f.isNum || string(f.bytes) != versions
		case "State":
			s.state, bad = int(f.num&3), !f.isNum || f.num > wireLeft
		case "Incarnation":
			s.incarnation, bad = f.num, !f.isNum || f.num >= 1<<32
		case "SeqNo":
			bad = !f.isNum || f.num >= 1<<32
			if typ == msgPing && g.pinged != nil {
				g.pinged(f.num)
			}
		case "Port", "SourcePort", "Nack":
			bad = !f.isNum || f.num >= 1<<32
		default:
			bad = true
		}
		if bad {
			return refuse(causeBroken, "its field %.32q is not what memberlist writes", f.name)
		}
	}
	return g.note(typ, s, from, versioned)
}

// isID tells whether bytes may be a node's id, or none.
func isID(b []byte) bool {
	return len(b) <= maxName && !bytes.ContainsFunc(b, func(r rune) bool { return r <= ' ' || r > '~' })
}

// note checks what a message of its type must hold, and passes on what it says.
func (g guard) note(typ byte, s sighting, from string, versioned bool) error {
	switch typ {
	case msgAlive, msgPushPull:
		if !versioned || s.node == "" {
			return refuse(causeBroken, "it lacks a node's name or versions")
		}
	case msgSuspect:
		s.state = wireSuspect
	case msgDead:
		s.state = wireDead
		if from == s.node {
			s.state = wireLeft
		}
	default:
		return nil
	}
	if g.seen != nil {
		return g.seen(s)
	}
	return nil
}

// stream checks the only message of one direction of a stream.
func (g guard) stream(b []byte) error {
	if len(b) == 0 {
		return refuse(causeBroken, "it is empty")
	}
	switch b[0] {
	case msgPing, msgAck:
		return g.fields(b[0], b[1:])
	case msgErr:
		fields, rest, err := readFields(b[1:])
		if err != nil || len(rest) > 0 || len(fields) != 1 || fields[0].name != "Error" || fields[0].isNum || len(fields[0].bytes) > maxMeta {
			return refuse(causeBroken, "%v", errShape)
		}
		return nil
	case msgPushPull:
		return g.exchange(b[1:])
	case msgCompressed:
		return refuse(causeCompressed, "")
	}
	return refuse(causeBroken, "it has type %d", b[0])
}

// exchange checks an exchange of states: a header, the nodes that it counts,
// and as many bytes of ours as it says.
func (g guard) exchange(b []byte) error {
	header, b, err := readFields(b)
	if err != nil {
		return refuse(causeBroken, "%v", err)
	}
	var nodes, ours uint64
	for _, f := range header {
		switch {
		case !f.isNum:
			return refuse(causeBroken, "its header is not what memberlist writes")
		case f.name == "Nodes":
			nodes = f.num
		case f.name == "UserStateLen":
			ours = f.num
		case f.name != "Join":
			return refuse(causeBroken, "its header is not what memberlist writes")
		}
	}
	if nodes > maxNodes {
		return refuse(causeSize, "it claims %d nodes, allowed are %d", nodes, maxNodes)
	}
	for range nodes {
		var fields []field
		if fields, b, err = readFields(b); err != nil {
			return refuse(causeBroken, "%v", err)
		}
		if err := g.node(msgPushPull, fields); err != nil {
			return err
		}
	}
	if ours != uint64(len(b)) {
		return refuse(causeBroken, "its header claims %d bytes of ours, it has %d", ours, len(b))
	}
	return nil
}
