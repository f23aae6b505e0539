package proxy

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/starling-lb/starling/proxy/wire"
)

// SessionConfig says what a pool's sessions are: what their keys are, and how
// long one is remembered. A pool without has none.
type SessionConfig struct {
	Key         []string      `yaml:"key"` // places in a request; the first that is there is the session's
	Cookie      CookieConfig  `yaml:"cookie"`
	TTL         time.Duration `yaml:"ttl"`                                 // a session is forgotten no sooner after its last turn; 0s: never
	MaxSessions int           `yaml:"max_sessions"`                        // of the whole pool; beyond, who was not used for longest is forgotten
	Consistency string        `yaml:"consistency" enum:"available,strict"` // what to do while nobody can agree: guess, or answer 503
	BindTimeout time.Duration `yaml:"bind_timeout"`                        // for agreeing where a new session lives
	MaxBodyScan int64         `yaml:"max_body_scan" unit:"size"`           // of a body, to find json:FIELD in
	EpochHeader string        `yaml:"epoch_header"`                        // field that tells a backend the binding's epoch; empty: none
}

// CookieConfig is the cookie that a client is given that brings no key.
type CookieConfig struct {
	Name     string        `yaml:"name"`
	Secure   string        `yaml:"secure" enum:"auto,true,false"` // auto: where the client comes by TLS
	SameSite string        `yaml:"same_site" enum:"lax,strict,none"`
	TTL      time.Duration `yaml:"ttl"` // the browser keeps it for so long after its last use; 0s: until it is closed
}

// DefaultSession holds the contract's defaults for a pool that has sessions.
func DefaultSession() SessionConfig {
	return SessionConfig{
		Key: []string{"header:X-Session-ID", "cookie:starling"}, Cookie: CookieConfig{Name: "starling", Secure: "auto", SameSite: "lax"},
		TTL: 30 * time.Minute, MaxSessions: 1_000_000, Consistency: "available", BindTimeout: 250 * time.Millisecond, MaxBodyScan: 256 << 10,
	}
}

const (
	maxSources   = 16          // of keys, that a pool may list
	mostSessions = 100_000_000 // that max_sessions may ask for: each costs some 200 bytes on each replica
)

// Strict tells whether a turn waits for an agreement rather than guess.
func (c SessionConfig) Strict() bool { return c.Consistency == "strict" }

// Validate reports every fault by the key it concerns.
func (c SessionConfig) Validate(fault func(key, format string, args ...any)) {
	c.validateKeys(fault)
	c.Cookie.Validate(func(key, format string, args ...any) { fault("cookie."+key, format, args...) })
	if c.MaxSessions < 1 || c.MaxSessions > mostSessions {
		fault("max_sessions", "%d is out of range; write 1 to %d, or nothing for 1000000", c.MaxSessions, mostSessions)
	}
	if c.BindTimeout < time.Millisecond || c.BindTimeout > 30*time.Second {
		fault("bind_timeout", "%v is out of range; write 1ms to 30s, or nothing for 250ms", c.BindTimeout)
	}
	if c.MaxBodyScan < 1<<10 || c.MaxBodyScan > 16<<20 {
		fault("max_body_scan", "%d bytes is out of range; write 1KiB to 16MiB, or nothing for 256KiB", c.MaxBodyScan)
	}
	if c.EpochHeader != "" && !wire.MayAdd(c.EpochHeader) {
		fault("epoch_header", "%q is no field that could be added to a request; write for example X-Session-Epoch", c.EpochHeader)
	}
}

func (c SessionConfig) validateKeys(fault func(key, format string, args ...any)) {
	if len(c.Key) == 0 || len(c.Key) > maxSources {
		fault("key", "lists %d places for a key; write 1 to %d, such as header:X-Session-ID", len(c.Key), maxSources)
	}
	for i, s := range c.Key {
		if _, err := parseKeySource(s); err != nil {
			fault(fmt.Sprintf("key[%d]", i), "%v", err)
		} else if slices.Contains(c.Key[:i], s) {
			fault(fmt.Sprintf("key[%d]", i), "%q stands twice; take one out", s)
		}
	}
}

// Validate reports every fault by the key it concerns.
func (c CookieConfig) Validate(fault func(key, format string, args ...any)) {
	if !wire.ValidFieldName(c.Name) {
		fault("name", "%q is no name for a cookie; write letters, digits, and _ . -, such as starling", c.Name)
	}
	if c.SameSite == "none" && c.Secure == "false" {
		fault("secure", "is false, and browsers take a cookie with same_site none only if it is secure; write auto or true")
	}
	if strings.HasPrefix(c.Name, "__") && c.Secure == "false" {
		fault("secure", "is false, and browsers take a cookie whose name begins with __Host- or __Secure- only if it is secure; write auto or true")
	}
	if c.TTL != 0 && c.TTL < time.Second {
		fault("ttl", "%v is too short; a browser counts in seconds: write 1s or longer, or 0s for until it is closed", c.TTL)
	}
}

// hands tells whether a client that brings no key is given the cookie.
func (c SessionConfig) hands() bool { return slices.Contains(c.Key, "cookie:"+c.Cookie.Name) }
