package proxy

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"strconv"
	"sync/atomic"
	"time"
)

// The cookie's value is the session's key: 128 random bits, and when it was made,
// which is hidden under some of them. It stays the same for as long as the client
// keeps it.
const (
	cookieRandom = 16
	cookieBytes  = cookieRandom + 4 // seconds since 1970
	cookieText   = 27               // so many characters
	cookieEra    = 400 * 24 * time.Hour
)

// newCookie is the value of a cookie that nobody has.
func newCookie(now time.Time) []byte {
	var raw [cookieBytes]byte
	_, _ = rand.Read(raw[:cookieRandom]) // it does not fail
	binary.BigEndian.PutUint32(raw[cookieRandom:], uint32(now.Unix())^binary.BigEndian.Uint32(raw[:]))
	return base64.RawURLEncoding.AppendEncode(nil, raw[:])
}

// cookieAge is how long ago a cookie was made; ok is false where its value is not
// of our making.
func cookieAge(value []byte, now time.Time) (age time.Duration, ok bool) {
	var raw [cookieBytes]byte
	if len(value) != cookieText {
		return 0, false
	}
	if n, err := base64.RawURLEncoding.Decode(raw[:], value); err != nil || n != cookieBytes {
		return 0, false
	}
	made := binary.BigEndian.Uint32(raw[cookieRandom:]) ^ binary.BigEndian.Uint32(raw[:])
	age = now.Sub(time.Unix(int64(made), 0))
	return age, age > -time.Hour && age < cookieEra // clocks of nodes differ; no browser keeps one for longer
}

// cookies are a pool's.
type cookies struct {
	cfg CookieConfig

	// When this node gave a client its cookie again, by a part of its value: the
	// part's rest, and seconds since 1970. Two clients that meet here only get
	// theirs more often. nil: the cookies do not expire.
	renewed []atomic.Uint64
}

const renewals = 1 << 14 // clients whose renewals a pool remembers; each costs 8 bytes

func newCookies(cfg CookieConfig) *cookies {
	k := &cookies{cfg: cfg}
	if cfg.TTL > 0 {
		k.renewed = make([]atomic.Uint64, renewals)
	}
	return k
}

// source is where clients bring the cookie.
func (k *cookies) source() keySource { return keySource{"cookie", k.cfg.Name} }

// due tells whether a client should be given its cookie again, since it would
// expire: half of its time is over, and this node did not renew it since. It
// counts as renewed then.
func (k *cookies) due(value []byte, now time.Time) bool {
	age, ours := cookieAge(value, now)
	if k.renewed == nil || !ours || age < k.cfg.TTL/2 {
		return false
	}
	h := uint32(2166136261) // FNV-1a
	for _, c := range value {
		h = (h ^ uint32(c)) * 16777619
	}
	slot, mine := &k.renewed[h%renewals], uint64(h)<<32
	was := slot.Load()
	if was&^(1<<32-1) == mine && now.Sub(time.Unix(int64(uint32(was)), 0)) < k.cfg.TTL/2 {
		return false
	}
	slot.Store(mine | uint64(uint32(now.Unix())))
	return true
}

// appendLine appends a cookie as Set-Cookie has it.
func (k *cookies) appendLine(dst, value []byte, tls bool) []byte {
	dst = append(append(append(dst, k.cfg.Name...), '='), value...)
	dst = append(dst, "; Path=/; HttpOnly"...)
	if k.cfg.Secure == "true" || k.cfg.Secure == "auto" && (tls || k.cfg.SameSite == "none") {
		dst = append(dst, "; Secure"...)
	}
	if k.cfg.TTL > 0 {
		dst = strconv.AppendInt(append(dst, "; Max-Age="...), int64((k.cfg.TTL+time.Second-1)/time.Second), 10)
	}
	return append(append(dst, "; SameSite="...), sameSite(k.cfg.SameSite)...)
}

func sameSite(word string) string {
	switch word {
	case "strict":
		return "Strict"
	case "none":
		return "None"
	}
	return "Lax"
}

// cookie is the line that gives the client its cookie; empty: it needs none.
func (s *Stream) cookie() []byte {
	if s.visit == nil || s.visit.cookie == nil {
		return nil
	}
	return s.pool.cookies.appendLine(nil, s.visit.cookie, s.client.byTLS())
}

// byTLS tells whether the client came by TLS, to this node or to a proxy that is
// believed.
func (c *client) byTLS() bool {
	if c.secure || !c.trusted {
		return c.secure
	}
	proto, _ := c.req.Field("x-forwarded-proto")
	return bytes.EqualFold(proto, []byte("https"))
}
