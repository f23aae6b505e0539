package backend

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// MinSourceInterval is the least time between two looks at DNS, however short a
// TTL is.
const MinSourceInterval = time.Second

// SourceConfig says where a pool's backends come from beside the list in the
// file. All sources add up.
type SourceConfig struct {
	DNS      string        `yaml:"dns"`      // host:port whose addresses are backends; https://host:port for TLS
	SRV      string        `yaml:"srv"`      // name of SRV records, such as _llm._tcp.example.com
	File     string        `yaml:"file"`     // YAML or JSON with a list of backends, read again when it changes
	Interval time.Duration `yaml:"interval"` // between two looks at DNS, at most; a shorter TTL shortens it, down to 1s
}

// DefaultSource holds the contract's defaults.
func DefaultSource() SourceConfig { return SourceConfig{Interval: 30 * time.Second} }

// On tells whether there is any source.
func (c SourceConfig) On() bool { return c.DNS != "" || c.SRV != "" || c.File != "" }

// Validate reports every fault by the key it concerns. That the file can be
// read is for those to say who read it.
func (c SourceConfig) Validate(fault func(key, format string, args ...any)) {
	if c.DNS != "" {
		if _, err := ParseTarget(c.DNS); err != nil {
			fault("dns", "%v", err)
		}
	}
	if c.SRV != "" {
		if _, err := ParseService(c.SRV); err != nil {
			fault("srv", "%v", err)
		}
	}
	if c.Interval < MinSourceInterval {
		fault("interval", "%v is too short; write at least %v", c.Interval, MinSourceInterval)
	}
}

// Target is a name in DNS and what is made of what it leads to. Port is empty
// for a service.
type Target struct {
	Scheme, Host, Port string
}

// URL is that of the backend at an address or under a name.
func (t Target) URL(host, port string) string { return t.Scheme + "://" + net.JoinHostPort(host, port) }

// ParseTarget reads [http://|https://]host:port.
func ParseTarget(s string) (Target, error) {
	t, err := ParseService(s)
	if err != nil {
		return t, err
	}
	host, port, err := net.SplitHostPort(t.Host)
	if err != nil || host == "" {
		return t, fmt.Errorf("%q is no host:port; write for example llm.internal:9000", s)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return t, fmt.Errorf("%q has port %q; write a number from 1 to 65535", s, port)
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return t, fmt.Errorf("%q is an address and no name; write it under backends", s)
	}
	t.Host, t.Port = host, port
	return t, nil
}

// ParseService reads [http://|https://]name.
func ParseService(s string) (Target, error) {
	t := Target{Scheme: "http", Host: s}
	if scheme, rest, ok := strings.Cut(s, "://"); ok {
		t.Scheme, t.Host = scheme, rest
	}
	switch {
	case t.Scheme != "http" && t.Scheme != "https":
		return t, fmt.Errorf("%q has scheme %q; write http:// or https:// or nothing before the name", s, t.Scheme)
	case t.Host == "" || strings.ContainsAny(t.Host, "/ \t@?#"):
		return t, fmt.Errorf("%q is no name; write only the name, with no path or query", s)
	}
	return t, nil
}
