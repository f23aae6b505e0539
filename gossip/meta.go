package gossip

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Meta is what every node tells of itself to all; it fits into memberlist's 512
// bytes whatever it holds.
type Meta struct {
	Name       string // for people; unique by custom only
	Zone       string
	Version    string // of starling
	ConfigHash string
	Cluster    string // id of the cluster; empty: not initialised yet
	RPC        string // host:port of Raft and node calls; empty: none
	Proxy      string // host:port of its first listener; empty: none
	Admin      string // host:port of its admin API
	Boot       uint64 // numbers the node's starts
	Level      uint32 // highest feature level that it can work at
	Roles      Roles
	Draining   bool
	Failed     bool   // its disk has failed: it carries streams, and keeps nothing
	Expect     uint8  // how many nodes it wants a new cluster to begin with; 0: it founds none
	Sees       uint8  // and how many such nodes without a cluster it sees, itself included
	Generation uint32 // which beginning of what the cluster agrees on its map is of, the later the higher; 0: it has none
}

// Roles is what a node does beyond being a proxy.
type Roles byte

// Shards says that the node hosts replicas of shards.
const Shards Roles = 1

// metaVersion is the form's; a form that only appends keeps it, since readers
// pass over what they do not know at the end.
const metaVersion = 1

// The flags; older nodes pass over those that they do not know.
const (
	flagDraining = 1 << iota
	flagFailed
)

const maxMetaText = 48 // bytes of each text; longer ones are cut

var errMeta = errors.New("metadata of a node is malformed")

func (m *Meta) texts() []*string {
	return []*string{&m.Name, &m.Zone, &m.Version, &m.ConfigHash, &m.Cluster, &m.RPC, &m.Proxy, &m.Admin}
}

// encode is the form on the wire: version, flags, roles, level, boot, then each
// text with its length, then expect and sees, then generation, which older nodes do
// not tell.
func (m Meta) encode() []byte {
	var flags byte
	if m.Draining {
		flags |= flagDraining
	}
	if m.Failed {
		flags |= flagFailed
	}
	b := []byte{metaVersion, flags, byte(m.Roles)}
	b = binary.AppendUvarint(b, uint64(m.Level))
	b = binary.AppendUvarint(b, m.Boot)
	for _, text := range m.texts() {
		s := printable(*text, maxMetaText)
		b = append(append(b, byte(len(s))), s...)
	}
	return binary.AppendUvarint(append(b, m.Expect, m.Sees), uint64(m.Generation))
}

func decodeMeta(b []byte) (m Meta, err error) {
	if len(b) < 3 || b[0] != metaVersion {
		return m, fmt.Errorf("%w: it has %d bytes and no version that is known here (%d)", errMeta, len(b), metaVersion)
	}
	m.Draining, m.Failed, m.Roles = b[1]&flagDraining != 0, b[1]&flagFailed != 0, Roles(b[2])
	b = b[3:]
	var level uint64
	for _, into := range []*uint64{&level, &m.Boot} {
		v, n := binary.Uvarint(b)
		if n <= 0 {
			return m, fmt.Errorf("%w: it is cut within a number", errMeta)
		}
		*into, b = v, b[n:]
	}
	if level > 1<<31 {
		return m, fmt.Errorf("%w: it has feature level %d", errMeta, level)
	}
	m.Level = uint32(level)
	for _, text := range m.texts() {
		if len(b) < 1 || int(b[0]) > maxMetaText || len(b) < 1+int(b[0]) {
			return m, fmt.Errorf("%w: it is cut within a text", errMeta)
		}
		*text, b = string(b[1:1+b[0]]), b[1+b[0]:]
		if *text != printable(*text, maxMetaText) {
			return m, fmt.Errorf("%w: it has %q for a text", errMeta, *text)
		}
	}
	if len(b) >= 2 {
		m.Expect, m.Sees = b[0], b[1]
		if v, n := binary.Uvarint(b[2:]); n > 0 && v <= math.MaxUint32 { // an older node's end there
			m.Generation = uint32(v)
		}
	}
	return m, nil
}

// printable is a text as logs, metrics and terminals can take it, cut to whole
// characters within a number of bytes.
func printable(s string, most int) string {
	s = strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
	for len(s) > most {
		_, n := utf8.DecodeLastRuneInString(s)
		s = s[:len(s)-n]
	}
	return s
}
