package proxy

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/starling-lb/starling/proxy/backend"
)

// keySource says where in a request a key is.
type keySource struct {
	kind string // client_ip, header, cookie, query or json
	name string
}

var errKeySource = errors.New("write client_ip, header:NAME, cookie:NAME, query:NAME or json:FIELD")

func parseKeySource(s string) (keySource, error) {
	kind, name, named := strings.Cut(s, ":")
	switch kind {
	case "client_ip":
		if !named {
			return keySource{kind: kind}, nil
		}
	case "header":
		if name != "" && strings.Trim(name, tokenChars) == "" {
			return keySource{kind, name}, nil
		}
	case "cookie", "query":
		if name != "" && !strings.ContainsAny(name, " ;=&#,\t") {
			return keySource{kind, name}, nil
		}
	case "json":
		if name != "" {
			return keySource{kind, name}, nil
		}
	}
	return keySource{}, fmt.Errorf("%q says no place in a request; %w", s, errKeySource)
}

func parseKeySources(list []string) (sources []keySource, err error) {
	for _, s := range list {
		k, err := parseKeySource(s)
		if err != nil {
			return nil, err
		}
		sources = append(sources, k)
	}
	return sources, nil
}

// maxKey bounds a key, in bytes: names of sessions are short, and what is longer
// is something else.
const maxKey = 4 << 10

// errOddKey says that a request names a key that cannot be used: one that is too
// long, or two header lines that differ. A guess would put one client's session
// where another program, which reads the same request, does not. In a cookie, a
// query or a body the first of two counts: nothing is read behind it.
var errOddKey = errors.New("a key that cannot be used")

// key is the request's, from the first place that holds one; nil where none
// does. It stays as it is until the next request. within bounds how much of a
// body is looked at.
func (c *client) key(places []keySource, within int) (key []byte, from keySource, err error) {
	for _, k := range places {
		key, err := k.of(c, within)
		switch {
		case err != nil:
			return nil, k, err
		case len(key) > maxKey:
			return nil, k, errOddKey
		case len(key) > 0:
			return key, k, nil
		}
	}
	return nil, keySource{}, nil
}

// of is the request's key; empty where it has none.
func (k keySource) of(c *client, within int) ([]byte, error) {
	switch k.kind {
	case "header":
		return k.header(c)
	case "cookie":
		for v := range c.req.Values("cookie") {
			if key := pairValue(v, k.name, ';'); len(key) > 0 {
				return key, nil
			}
		}
		return nil, nil
	case "query":
		_, query, _ := bytes.Cut(c.req.Target, []byte("?"))
		return pairValue(query, k.name, '&'), nil
	case "json":
		return c.jsonValue(k.name, within)
	}
	return []byte(c.origin()), nil
}

// header is the value of the only field of that name; one that stands there
// several times has to say the same.
func (k keySource) header(c *client) (key []byte, err error) {
	first := true
	for v := range c.req.Values(k.name) {
		if !first && !bytes.Equal(v, key) {
			return nil, errOddKey
		}
		key, first = v, false
	}
	return key, nil
}

// pairValue finds a name's value in NAME=VALUE pairs, as they are written; an
// empty one is none.
func pairValue(pairs []byte, name string, between byte) []byte {
	for len(pairs) > 0 {
		pair := pairs
		if i := bytes.IndexByte(pairs, between); i >= 0 {
			pair, pairs = pairs[:i], pairs[i+1:]
		} else {
			pairs = nil
		}
		pair = bytes.Trim(pair, " \t")
		if len(pair) > len(name)+1 && pair[len(name)] == '=' && string(pair[:len(name)]) == name {
			return pair[len(name)+1:]
		}
	}
	return nil
}

// origin is the address that the request comes from: the last that no trusted
// proxy has, of those that X-Forwarded-For names, and else the client's own.
func (c *client) origin() string {
	from := c.addr
	if !c.trusted {
		return from
	}
	var lines [8][]byte // the last of them: what a client wrote stands in front
	n := 0
	for v := range c.req.Values("x-forwarded-for") {
		lines[n%len(lines)] = v
		n++
	}
	for i := n - 1; i >= max(0, n-len(lines)); i-- {
		for line := lines[i%len(lines)]; len(line) > 0; {
			i := bytes.LastIndexByte(line, ',')
			addr, ok := parseHop(line[i+1:])
			if !ok {
				return from
			}
			if from = addr.String(); !c.gate.trusts(addr) {
				return from
			}
			line = line[:max(i, 0)]
		}
	}
	return from
}

// parseHop reads an address as it stands in X-Forwarded-For, with or without a
// port.
func parseHop(p []byte) (netip.Addr, bool) {
	s := string(bytes.TrimSpace(p))
	if at, err := netip.ParseAddrPort(s); err == nil {
		return at.Addr().Unmap(), true
	}
	addr, err := netip.ParseAddr(strings.Trim(s, "[]"))
	return addr.Unmap(), err == nil
}

// keyed finds what the stream is placed by, while the whole request is at hand:
// the key of a policy that hashes, and the session that the request names.
func (s *Stream) keyed() error {
	s.client.hashed = 0
	if policy := s.pool.Hashes(); policy != "" {
		if err := s.hash(policy); err != nil {
			return err
		}
	}
	if s.pool.places == nil {
		return nil
	}
	return s.visits()
}

// hash is of the key that the policy goes by; 0 where there is none. It is the
// same on every node.
func (s *Stream) hash(policy string) error {
	places := s.pool.hashKey
	if policy == backend.IPHash {
		places = []keySource{{kind: "client_ip"}}
	}
	key, _, err := s.client.key(places, s.pool.scan)
	switch {
	case errors.Is(err, errOddKey), err == nil && len(key) == 0:
		return nil
	case err != nil:
		return err
	}
	h := uint64(14695981039346656037) // FNV-1a
	for _, c := range key {
		h = (h ^ uint64(c)) * 1099511628211
	}
	s.client.hashed = max(h, 1)
	return nil
}
