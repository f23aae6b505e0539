package backend

import (
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Config is one backend as the file names it.
type Config struct {
	ID     string `yaml:"id"`     // unique over all pools; default host:port of URL
	URL    string `yaml:"url"`    // http://host:port or https://host:port
	Weight int    `yaml:"weight"` // share of new streams beside the others' weights

	MaxStreams int `yaml:"max_streams"` // at a time; 0: what the pool says
}

// DefaultConfig is a backend with every default but its URL.
func DefaultConfig() Config { return Config{Weight: 1} }

// OutlierConfig says when failures on real traffic take a backend out, and for
// how long.
type OutlierConfig struct {
	ConsecutiveFailures int           `yaml:"consecutive_failures"` // failures in a row before the first byte; 0 never ejects
	BaseEjection        time.Duration `yaml:"base_ejection"`        // the first ejection; each one more in a row doubles it
	MaxEjection         time.Duration `yaml:"max_ejection"`         // the longest ejection
	MaxEjectedPercent   int           `yaml:"max_ejected_percent"`  // of the pool, counted after the ejection; the last backend always stays
	PanicPercent        int           `yaml:"panic_percent"`        // of the pool: with fewer usable, but one, health is ignored; 0: never
	Latency             time.Duration `yaml:"latency"`              // to the head of an answer; a longer one counts as a failure; 0s: none does
}

// DefaultOutlier holds the contract's defaults.
func DefaultOutlier() OutlierConfig {
	return OutlierConfig{ConsecutiveFailures: 5, BaseEjection: 10 * time.Second, MaxEjection: 5 * time.Minute, MaxEjectedPercent: 50, PanicPercent: 50}
}

// Validate reports every fault by the key it concerns.
func (c Config) Validate(fault func(key, format string, args ...any)) {
	if c.ID != "" && !validID(c.ID) {
		fault("id", "%q is no id; write up to %d printable characters without spaces", c.ID, maxID)
	}
	if c.URL == "" {
		fault("url", "is missing; write the backend's address, for example http://127.0.0.1:9001")
	} else if _, err := ParseURL(c.URL); err != nil {
		fault("url", "%v", err)
	}
	if c.Weight < 1 || c.Weight > 1000 {
		fault("weight", "%d is out of range; write a number from 1 to 1000", c.Weight)
	}
	if c.MaxStreams < 0 {
		fault("max_streams", "%d is negative; write 0 for what backend.max_streams says, or a count such as 16", c.MaxStreams)
	}
}

const maxID = 300 // bytes; host:port, which it may be, is shorter

// validID tells whether an id can stand in logs, tables and the header
// X-Starling-Backend as it is, and in a path of the admin API.
func validID(s string) bool {
	bad := func(r rune) bool { return r == utf8.RuneError || !unicode.IsGraphic(r) || unicode.IsSpace(r) }
	return len(s) <= maxID && s != "." && s != ".." && !strings.ContainsFunc(s, bad)
}

// Validate reports every fault by the key it concerns.
func (c OutlierConfig) Validate(fault func(key, format string, args ...any)) {
	if c.ConsecutiveFailures < 0 {
		fault("consecutive_failures", "%d is negative; write 0 to switch ejection off, or a count such as 5", c.ConsecutiveFailures)
	}
	if c.BaseEjection <= 0 {
		fault("base_ejection", "must be longer than 0s, for example 10s")
	}
	if c.MaxEjection < c.BaseEjection {
		fault("max_ejection", "%v is shorter than base_ejection (%v); write at least that", c.MaxEjection, c.BaseEjection)
	}
	if c.MaxEjectedPercent < 0 || c.MaxEjectedPercent > 100 {
		fault("max_ejected_percent", "%d is no percentage; write 0 to 100", c.MaxEjectedPercent)
	}
	if c.PanicPercent < 0 || c.PanicPercent > 100 {
		fault("panic_percent", "%d is no percentage; write 0 (never) to 100", c.PanicPercent)
	}
}

// Address is where a backend listens.
type Address struct {
	Name string // the host alone, no brackets around it: what is resolved, and what TLS verifies
	TLS  bool   // https
	Host string // as written, for the Host header with host: backend; with the port unless it is the scheme's own
	Dial string // host:port to connect to
}

// ParseURL reads a backend URL: a scheme, a host, an optional port and nothing
// else.
func ParseURL(raw string) (Address, error) {
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		return Address{}, fmt.Errorf("%q is no URL (%w); write it as http://host:port", raw, err)
	case u.Scheme != "http" && u.Scheme != "https":
		return Address{}, fmt.Errorf("%q has scheme %q; write it as http://host:port", raw, u.Scheme)
	case u.Hostname() == "":
		return Address{}, fmt.Errorf("%q names no host; write it as http://host:port", raw)
	case u.Path != "" && u.Path != "/", u.RawQuery != "", u.Fragment != "", u.User != nil:
		return Address{}, fmt.Errorf("%q carries more than scheme, host and port; a request's own target is sent on as it came, so write only http://host:port", raw)
	}
	port, usual := u.Port(), "80"
	if u.Scheme == "https" {
		usual = "443"
	}
	if port == "" {
		port = usual
	} else if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return Address{}, fmt.Errorf("%q has port %q; write a number from 1 to 65535", raw, port)
	}
	host := strings.TrimSuffix(u.Host, ":")
	if port == usual {
		host = strings.TrimSuffix(host, ":"+usual)
	}
	return Address{Name: u.Hostname(), TLS: u.Scheme == "https", Host: host, Dial: net.JoinHostPort(u.Hostname(), port)}, nil
}
