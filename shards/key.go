package shards

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
)

// Key is a session: the hash of its pool and its name under the cluster's secret.
// Without the secret nobody can make up sessions that all fall into one shard,
// and a log or snapshot that leaks tells no names.
type Key [16]byte

func (k Key) String() string { return hex.EncodeToString(k[:]) }

// Shard is the shard of the key, from 1 to count; shard 0 is the cluster's own.
func (k Key) Shard(count int) uint32 {
	return 1 + uint32(uint64(binary.BigEndian.Uint32(k[:]))*uint64(count)>>32)
}

// Hasher makes keys.
type Hasher struct {
	secret []byte
	count  int
}

// minSecret is as many bytes as an attacker should have to guess.
const minSecret = 16

// NewHasher wants the cluster's secret and its number of session shards.
func NewHasher(secret []byte, count int) (*Hasher, error) {
	if len(secret) < minSecret || count < 1 {
		return nil, fmt.Errorf("hasher of session keys: a secret of %d bytes and %d shards; want at least %d bytes and 1 shard", len(secret), count, minSecret)
	}
	return &Hasher{secret: secret, count: count}, nil
}

// Key returns the session's key and its shard: half of a SHA-256 over the secret
// and what is to be hidden. The other half stays unknown, so nobody can go on from
// a key to that of a longer name, which is what HMAC, at four times the cost, is
// for.
func (h *Hasher) Key(pool, name string) (Key, uint32) {
	var room [512]byte // most fit: no allocation
	b := append(room[:0], h.secret...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(pool))) // or "ab","c" would be "a","bc"
	b = append(append(b, pool...), name...)
	sum := sha256.Sum256(b)
	k := Key(sum[:len(Key{})])
	return k, k.Shard(h.count)
}
