package gossip

import (
	"encoding/base64"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
)

// Config says where a node gossips, with whom and how closed.
type Config struct {
	Bind      string   // host:port, TCP and UDP; port 0 takes a free one
	Advertise string   // host that others reach; empty: Bind's
	Seeds     []string // host:port of nodes to join by
	Label     string   // separates clusters that share a network
	Keys      []string // base64 of 16, 24 or 32 bytes; the first encrypts, all decrypt
	KeysFile  string   // one key a line, instead of Keys
	Insecure  bool     // allow an address that is not loopback without keys
}

// DefaultBind is where a node gossips that does not say it.
const DefaultBind = "127.0.0.1:7946"

const (
	maxSeeds   = 64
	maxLabel   = 63
	maxKeys    = 8
	maxKeyFile = 4 << 10 // bytes
)

// DefaultConfig gossips on loopback, where no key is asked.
func DefaultConfig() Config { return Config{Bind: DefaultBind} }

// Validate reports every fault by the key it concerns.
func (c Config) Validate(fault func(key, format string, args ...any)) {
	host, err := checkAddress(c.Bind)
	if err != nil {
		fault("bind", "%q %v; write host:port, for example %s", c.Bind, err, DefaultBind)
	}
	if strings.ContainsAny(c.Advertise, "/ []") || strings.Count(c.Advertise, ":") == 1 {
		fault("advertise", "%q is no host; write a name or an address without a port: others use that of bind", c.Advertise)
	}
	if len(c.Seeds) > maxSeeds {
		fault("seeds", "has %d entries, allowed are %d; a few nodes that are mostly up are enough", len(c.Seeds), maxSeeds)
	}
	for i, s := range c.Seeds {
		if seedHost, err := checkAddress(s); err != nil || seedHost == "" {
			fault(fmt.Sprintf("seeds[%d]", i), "%q is no address to join by; write host:port, for example lb-2.internal:7946", s)
		} else if strings.HasSuffix(s, ":0") {
			fault(fmt.Sprintf("seeds[%d]", i), "%q has port 0; write the port of that node's cluster.bind", s)
		}
	}
	if len(c.Label) > maxLabel || strings.ContainsFunc(c.Label, func(r rune) bool { return r <= ' ' || r > '~' }) {
		fault("label", "%q is no label; write up to %d printable ASCII characters without blanks", c.Label, maxLabel)
	}
	if len(c.Keys) > 0 && c.KeysFile != "" {
		fault("gossip_keys_file", "stands beside gossip_keys; keep one of them")
	}
	keyed := len(c.Keys) > 0 || c.KeysFile != ""
	if _, err := c.keys(); err != nil {
		key := "gossip_keys"
		if c.KeysFile != "" {
			key = "gossip_keys_file"
		}
		fault(key, "%v", err)
	}
	if err == nil && !keyed && !c.Insecure && !isLoopback(host) {
		fault("gossip_keys", "is missing, and %s can be reached from outside; write a key (openssl rand -base64 32), or insecure: true if the network is closed otherwise", c.Bind)
	}
}

func checkAddress(s string) (host string, err error) {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return "", fmt.Errorf("is no address")
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return "", fmt.Errorf("has port %q", port)
	}
	return host, nil
}

// isLoopback tells whether only this machine reaches a host. A name that is
// not localhost may be anything.
func isLoopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.IsLoopback()
}

// keys decodes the configured keys, the first one first.
func (c Config) keys() ([][]byte, error) {
	lines := c.Keys
	if c.KeysFile != "" {
		info, err := os.Stat(c.KeysFile)
		if err != nil {
			return nil, fmt.Errorf("%w; name a file that this process can read", err)
		}
		if info.Size() > maxKeyFile {
			return nil, fmt.Errorf("%s has %d bytes, allowed are %d; write one key a line", c.KeysFile, info.Size(), maxKeyFile)
		}
		text, err := os.ReadFile(c.KeysFile)
		if err != nil {
			return nil, fmt.Errorf("%w; name a file that this process can read", err)
		}
		if lines = strings.Fields(string(text)); len(lines) == 0 {
			return nil, fmt.Errorf("%s holds no key; write one key a line (openssl rand -base64 32)", c.KeysFile)
		}
	}
	if len(lines) > maxKeys {
		return nil, fmt.Errorf("has %d keys, allowed are %d; remove those that nobody uses any more", len(lines), maxKeys)
	}
	var keys [][]byte
	for i, line := range lines {
		key, err := ParseKey(line)
		if err != nil {
			return nil, fmt.Errorf("key %d of %d %w", i+1, len(lines), err)
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// ParseKey reads a key as configuration and commands write it. Its error never
// shows the key.
func ParseKey(text string) ([]byte, error) {
	key, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, fmt.Errorf("is no base64; write what openssl rand -base64 32 prints")
	}
	if n := len(key); n != 16 && n != 24 && n != 32 {
		return nil, fmt.Errorf("has %d bytes, not 16, 24 or 32; write what openssl rand -base64 32 prints", n)
	}
	return key, nil
}
