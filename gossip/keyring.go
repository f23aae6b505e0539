package gossip

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
)

// keyring holds the keys of the cluster. Readers load one immutable ring, so
// that a rotation never shows a half-changed one: memberlist v0.6.0 hands out
// its slices while it changes them, and so gets no keys at all.
type keyring struct {
	now  atomic.Pointer[ring]
	mu   sync.Mutex        // one change at a time
	save func(*ring) error // keeps a ring over restarts; nil: not kept
}

// ring is the keys at one moment; the first encrypts.
type ring struct{ keys []sealer }

type sealer struct {
	key  []byte
	aead cipher.AEAD
}

var (
	errNoKey   = errors.New("no key of ours opens it")
	errUnkeyed = errors.New("this cluster has no keys; set cluster.gossip_keys in every node's configuration, then stop all nodes and start them again: those with keys and those without do not hear each other")
)

func newKeyring(keys [][]byte, save func(*ring) error) (*keyring, error) {
	r := &ring{}
	for _, key := range keys {
		s, err := newSealer(key)
		if err != nil {
			return nil, err
		}
		r.keys = append(r.keys, s)
	}
	k := &keyring{save: save}
	k.now.Store(r)
	return k, nil
}

func newSealer(key []byte) (sealer, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return sealer{}, fmt.Errorf("gossip key: %w", err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return sealer{}, fmt.Errorf("gossip key: %w", err)
	}
	return sealer{slices.Clone(key), aead}, nil
}

// mark names a key to people without telling it.
func mark(key []byte) string {
	sum := sha256.Sum256(key)
	return hex.EncodeToString(sum[:4])
}

func (k *keyring) enabled() bool { return len(k.now.Load().keys) > 0 }

// marks are the keys' names, the one that encrypts first.
func (k *keyring) marks() []string {
	var out []string
	for _, s := range k.now.Load().keys {
		out = append(out, mark(s.key))
	}
	return out
}

// install adds a key that decrypts from now on.
func (k *keyring) install(key []byte) error {
	return k.change(func(r *ring) error {
		if r.find(key) >= 0 {
			return nil
		}
		if len(r.keys) >= maxKeys {
			return fmt.Errorf("there are %d keys already; remove one that nobody uses any more", maxKeys)
		}
		s, err := newSealer(key)
		r.keys = append(r.keys, s)
		return err
	})
}

// use lets an installed key encrypt.
func (k *keyring) use(key []byte) error {
	return k.change(func(r *ring) error {
		i := r.find(key)
		if i < 0 {
			return fmt.Errorf("key %s is not installed; install it on every node first", mark(key))
		}
		s := r.keys[i]
		r.keys = slices.Insert(slices.Delete(r.keys, i, i+1), 0, s)
		return nil
	})
}

// remove forgets a key that does not encrypt.
func (k *keyring) remove(key []byte) error {
	return k.change(func(r *ring) error {
		switch i := r.find(key); i {
		case -1:
			return nil
		case 0:
			return fmt.Errorf("key %s encrypts; use another one on every node first", mark(key))
		default:
			r.keys = slices.Delete(r.keys, i, i+1)
			return nil
		}
	})
}

func (k *keyring) change(do func(*ring) error) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.enabled() {
		return errUnkeyed
	}
	next := &ring{slices.Clone(k.now.Load().keys)}
	if err := do(next); err != nil {
		return err
	}
	if k.save != nil {
		if err := k.save(next); err != nil {
			return err
		}
	}
	k.now.Store(next)
	return nil
}

func (r *ring) find(key []byte) int {
	return slices.IndexFunc(r.keys, func(s sealer) bool { return bytes.Equal(s.key, key) })
}
