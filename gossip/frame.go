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
// What stands before the body is authenticated with it.
//
//	packet  VK LL label nonce(12) body tag(16)
//	stream  VK LL label length(4) nonce(12) body tag(16)

// kind is what a frame carries.
type kind byte

const (
	kindList    kind = 1 // memberlist's own
	kindReport  kind = 2 // packets only
	kindKeys    kind = 3 // streams only: an order about keys, and its answer
	kindRefusal kind = 4 // streams only: one byte of cause, never sealed, so a hint at best
)

const (
	frameVersion = 1 << 4 // in the high half of the first byte
	sealedBit    = 1 << 3 // of the low half
	maxPacket    = 1400   // bytes of a datagram's payload: fits common networks' 1500 with room for a tunnel
	maxFrame     = 1 << 20
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
	return [...]string{"unknown", "version", "label", "key", "plain", "sealed", "broken", "size", "compressed", "cluster", "stranger", "old", "busy"}[c.index()]
}

func (c cause) index() int {
	if c > causeBusy {
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
	return c.seal(c.head(k, c.keys.enabled()), nil, body)
}

// stream makes a frame of a stream.
func (c codec) stream(k kind, body []byte) []byte {
	sealed := c.keys.enabled() && k != kindRefusal
	head := c.head(k, sealed)
	size := len(body)
	if sealed {
		size += sealSize
	}
	head = binary.BigEndian.AppendUint32(head, uint32(size))
	if !sealed {
		return append(head, body...)
	}
	return c.seal(head, []byte("stream"), body)
}

// seal appends the body to its head. The use keeps a packet from passing for a
// part of a stream.
func (c codec) seal(head, use, body []byte) []byte {
	r := c.keys.now.Load()
	if head[0]&sealedBit == 0 || len(r.keys) == 0 {
		return append(head, body...)
	}
	extra := append(head[:len(head):len(head)], use...)
	var nonce [nonceSize]byte
	_, _ = rand.Read(nonce[:]) // never fails
	out := make([]byte, 0, len(head)+sealSize+len(body))
	out = append(append(out, head...), nonce[:]...)
	return r.keys[0].aead.Seal(out, nonce[:], body, extra)
}

// openPacket gives the body of a datagram, in memory of its own.
func (c codec) openPacket(b []byte) (kind, []byte, error) {
	n, err := c.checkHead(b)
	if err != nil {
		return 0, nil, err
	}
	body, err := c.open(b[:n], nil, b[n:])
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

func (c codec) open(head, use, rest []byte) ([]byte, error) {
	r, sealed := c.keys.now.Load(), head[0]&sealedBit != 0
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
	extra := append(head[:len(head):len(head)], use...)
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
	rest, err := readSome(r, int(size))
	if err != nil {
		return 0, nil, err
	}
	body, err := c.open(head, []byte("stream"), rest)
	return k, body, err
}

// readSome grows with what comes, so that a mere claim costs nothing.
func readSome(r io.Reader, size int) ([]byte, error) {
	rest, err := io.ReadAll(io.LimitReader(r, int64(size)))
	if err == nil && len(rest) < size {
		err = io.ErrUnexpectedEOF
	}
	return rest, err
}

// readRefusal turns the other side's refusal into an error.
func readRefusal(r io.Reader) error {
	var one [1]byte
	if _, err := io.ReadFull(r, one[:]); err != nil {
		return err
	}
	return fmt.Errorf("it refused us: %w", &refusal{cause: cause(one[0])})
}
