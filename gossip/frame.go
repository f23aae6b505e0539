package gossip

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Everything that starling sends on its gossip port is a frame: one byte of
// version and kind, one of the label's length, the label, and the body, sealed
// where there are keys. A frame of a stream has the body's length before it.
// What stands before the body is authenticated with it. A stream's body is
// sealed in parts, so that who has no key costs no more than one.
//
//	packet  VK LL label nonce(12) body tag(16)
//	stream  VK LL label length(4) [nonce(12) part tag(16)]...

// kind is what a frame carries.
type kind byte

const (
	kindList    kind = 1 // memberlist's own
	kindReport  kind = 2 // packets only
	kindKeys    kind = 3 // streams only: an order about keys, and its answer
	kindRefusal kind = 4 // streams only: one byte of cause, never sealed, so a hint at best
	kindAsk     kind = 5 // packets only: a question for all of a report
)

const (
	frameVersion = 1 << 4 // in the high half of the first byte
	sealedBit    = 1 << 3 // of the low half
	maxPacket    = 1400   // bytes of a datagram's payload: fits common networks' 1500 with room for a tunnel
	maxFrame     = 1 << 20
	partSize     = 64 << 10 // bytes of a stream's body that are sealed together
	maxBody      = maxFrame - maxFrame/partSize*sealSize
	nonceSize    = 12
	sealSize     = nonceSize + 16
)

// cause is why something from the network was refused.
type cause byte

const (
	causeVersion cause = iota + 1
	causeLabel
	causeKey
	causePlain
	causeSealed
	causeBroken
	causeSize
	causeCompressed
	causeCluster
	causeStranger
	causeOld
	causeBusy
	causeFull
)

// refusal is a cause with what goes with it.
type refusal struct {
	cause cause
	note  string
}

func (r *refusal) Error() string {
	if r.note == "" {
		return r.cause.text()
	}
	return r.cause.text() + ": " + r.note
}

func refuse(c cause, format string, args ...any) error {
	return &refusal{c, fmt.Sprintf(format, args...)}
}

// causeOf is the cause of an error; everything unknown is broken.
func causeOf(err error) cause {
	var r *refusal
	if errors.As(err, &r) {
		return r.cause
	}
	return causeBroken
}

// name is the cause in metrics.
func (c cause) name() string {
	return [...]string{"unknown", "version", "label", "key", "plain", "sealed", "broken", "size", "compressed", "cluster", "stranger", "old", "busy", "full"}[c.index()]
}

func (c cause) index() int {
	if c > causeFull {
		return 0
	}
	return int(c)
}

func (c cause) text() string {
	return [...]string{
		"refused", "another version of starling's gossip, or something that is no starling", "another label (cluster.label)",
		"no common key (cluster.gossip_keys)", "plain text, and this cluster has keys (cluster.gossip_keys)",
		"encrypted, and this node has no key (cluster.gossip_keys)", "broken message", "message too large", "compressed message",
		"another cluster id", "no member", "older than what is known", "too many connections at once",
		"too many members",
	}[c.index()]
}

// codec makes and reads frames.
type codec struct {
	keys  *keyring
	label string
}

// overhead is what a frame adds to the body of a packet.
func (c codec) overhead() int {
	n := 2 + len(c.label)
	if c.keys.enabled() {
		n += sealSize
	}
	return n
}

func (c codec) head(k kind, sealed bool) []byte {
	first := frameVersion | byte(k)
	if sealed {
		first |= sealedBit
	}
	return append([]byte{first, byte(len(c.label))}, c.label...)
}

// packet makes a frame of one datagram.
func (c codec) packet(k kind, body []byte) []byte {
	head := c.head(k, c.keys.enabled())
	return c.seal(append(make([]byte, 0, len(head)+sealSize+len(body)), head...), head, body)
}

// stream makes a frame of a stream.
func (c codec) stream(k kind, body []byte) []byte {
	sealed := c.keys.enabled() && k != kindRefusal
	head := c.head(k, sealed)
	size := len(body)
	if sealed {
		size += sealSize * parts(size)
	}
	head = binary.BigEndian.AppendUint32(head, uint32(size))
	if !sealed {
		return append(head, body...)
	}
	out := append(make([]byte, 0, len(head)+size), head...)
	extra := streamExtra(head)
	for i := range parts(len(body)) {
		part := body[i*partSize : min(len(body), (i+1)*partSize)]
		out = c.seal(out, extra, part)
		if i == 0 {
			extra = append(extra, out[len(head):len(head)+nonceSize]...)
		}
		extra[0]++
	}
	return out
}

// parts is in how many a stream's body is sealed: in one, if it is empty.
func parts(size int) int { return max(1, (size+partSize-1)/partSize) }

// streamExtra begins what is authenticated with each part of a stream: its
// number, which keeps their order, and the head, which tells where they end. From
// the second on the first one's nonce goes with it, so that no two streams' parts
// can be mixed. No packet's head begins with a number below frameVersion.
func streamExtra(head []byte) []byte {
	return append(append(make([]byte, 0, 1+len(head)+nonceSize), 0), head...)
}

// seal appends the sealed body to b; extra is authenticated with it.
func (c codec) seal(b, extra, body []byte) []byte {
	r := c.keys.now.Load()
	if !c.keys.enabled() {
		return append(b, body...)
	}
	var nonce [nonceSize]byte
	_, _ = rand.Read(nonce[:]) // never fails
	return r.keys[0].aead.Seal(append(b, nonce[:]...), nonce[:], body, extra)
}

// openPacket gives the body of a datagram, in memory of its own.
func (c codec) openPacket(b []byte) (kind, []byte, error) {
	n, err := c.checkHead(b)
	if err != nil {
		return 0, nil, err
	}
	body, err := c.open(b[0], b[:n], b[n:])
	return kind(b[0] & 7), body, err
}

// checkHead returns where the head ends.
func (c codec) checkHead(b []byte) (int, error) {
	if len(b) < 2 || b[0]&0xf0 != frameVersion {
		return 0, refuse(causeVersion, "")
	}
	n := 2 + int(b[1])
	if len(b) < n {
		return 0, refuse(causeBroken, "it ends within its head")
	}
	if string(b[2:n]) != c.label {
		return 0, refuse(causeLabel, "it has %.64q, ours is %q", b[2:n], c.label)
	}
	return n, nil
}

// open gives what was sealed, if it was and had to be.
func (c codec) open(first byte, extra, rest []byte) ([]byte, error) {
	r, sealed := c.keys.now.Load(), first&sealedBit != 0
	switch {
	case sealed && len(r.keys) == 0:
		return nil, refuse(causeSealed, "")
	case !sealed && len(r.keys) > 0:
		return nil, refuse(causePlain, "")
	case !sealed:
		return append([]byte(nil), rest...), nil
	case len(rest) < sealSize:
		return nil, refuse(causeBroken, "it is too short for a sealed one")
	}
	for _, s := range r.keys {
		body, err := s.aead.Open(nil, rest[:nonceSize], rest[nonceSize:], extra)
		if err == nil {
			return body, nil
		}
	}
	return nil, refuse(causeKey, "%v", errNoKey)
}

// readStream reads one frame. It never holds more than maxFrame, and only as
// much as has come.
func (c codec) readStream(r io.Reader) (kind, []byte, error) {
	var two [2]byte
	if _, err := io.ReadFull(r, two[:]); err != nil {
		return 0, nil, err
	}
	if two[0]&0xf0 != frameVersion {
		return 0, nil, refuse(causeVersion, "")
	}
	head := make([]byte, 2+int(two[1])+4)
	copy(head, two[:])
	if _, err := io.ReadFull(r, head[2:]); err != nil {
		return 0, nil, err
	}
	k, size := kind(two[0]&7), binary.BigEndian.Uint32(head[len(head)-4:])
	if k == kindRefusal {
		return k, nil, readRefusal(r)
	}
	if _, err := c.checkHead(head[:len(head)-4]); err != nil {
		return 0, nil, err
	}
	if size > maxFrame {
		return 0, nil, refuse(causeSize, "%d bytes, allowed are %d", size, maxFrame)
	}
	body, err := c.readParts(r, head, int(size))
	return k, body, err
}

// readParts opens part by part: what comes after one that cannot be opened is
// not read, and what was only claimed costs nothing.
func (c codec) readParts(r io.Reader, head []byte, size int) (body []byte, err error) {
	most, extra := partSize, streamExtra(head)
	if head[0]&sealedBit != 0 {
		most += sealSize
	}
	buf := make([]byte, min(size, most))
	for i := 0; i == 0 || size > 0; i++ {
		part := buf[:min(size, most)]
		if _, err := io.ReadFull(r, part); err != nil {
			return nil, cutShort(err)
		}
		plain, err := c.open(head[0], extra, part)
		if err != nil {
			return nil, err
		}
		body, size = append(body, plain...), size-len(part)
		if i == 0 && len(part) >= nonceSize {
			extra = append(extra, part[:nonceSize]...)
		}
		extra[0]++
	}
	return body, nil
}

// cutShort is the error of a frame that ended within itself, never just the end
// of a stream.
func cutShort(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// readRefusal turns the other side's refusal into an error.
func readRefusal(r io.Reader) error {
	var one [1]byte
	if _, err := io.ReadFull(r, one[:]); err != nil {
		return err
	}
	return fmt.Errorf("it refused us: %w", &refusal{cause: cause(one[0])})
}
