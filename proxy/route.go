package proxy

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/starling-lb/starling/proxy/wire"
)

// listener is one address. It lives as long as its socket and the last of its
// connections; what the configuration says of it is its gate.
type listener struct {
	named  string // its address in the configuration
	socket net.Listener
	open   atomic.Int64 // connections that have a place
	told   atomic.Int64 // connections that are told that they have none
	crowd  crowd
	gate   atomic.Pointer[gate]
	shut   atomic.Bool // it is in the configuration no more: its connections end as they fall idle
}

// gate is what the configuration says of a listener, and where its requests go.
// It never changes: a request goes by the one that it found.
type gate struct {
	cfg      ListenerConfig
	timeouts ClientTimeouts
	limit    int64 // connections at most; 0: no limit
	trusted  []netip.Prefix
	keys     *keyring // nil: clients come without TLS
	routes   []route
}

type route struct {
	host     string // lower case
	wildcard bool   // host is a suffix that begins with a dot
	prefix   string // without its last slash; empty matches all
	method   string
	headers  map[string]string // names in lower case
	json     []jsonField
	pool     *pool
}

func newGate(cfg ListenerConfig, timeouts ClientTimeouts, pools map[string]*pool) (*gate, error) {
	l := &gate{cfg: cfg, timeouts: timeouts, limit: int64(cfg.MaxConnections)}
	if cfg.MaxConnections < 0 {
		l.limit = min(max(wire.DescriptorLimit()-1000, 1000)/2, 50000)
	}
	for _, s := range cfg.TrustedProxies {
		p, err := netip.ParsePrefix(s)
		if err != nil {
			return nil, fmt.Errorf("trusted_proxies of listener %s: %w", cfg.Address, err)
		}
		l.trusted = append(l.trusted, p)
	}
	configs := cfg.Routes
	if len(configs) == 0 && len(pools) == 1 {
		for name := range pools {
			configs = []RouteConfig{{PathPrefix: "/", Pool: name}}
		}
	}
	for _, c := range configs {
		p, ok := pools[c.Pool]
		if !ok {
			return nil, fmt.Errorf("route of listener %s: no pool %q", cfg.Address, c.Pool)
		}
		l.routes = append(l.routes, newRoute(c, p))
	}
	return l, nil
}

func newRoute(c RouteConfig, p *pool) route {
	r := route{host: strings.ToLower(c.Host), prefix: strings.TrimSuffix(c.PathPrefix, "/"), method: c.Method, headers: map[string]string{}, pool: p}
	if rest, ok := strings.CutPrefix(r.host, "*"); ok {
		r.host, r.wildcard = rest, true
	}
	for name, value := range c.Headers {
		r.headers[strings.ToLower(name)] = value
	}
	for _, name := range slices.Sorted(maps.Keys(c.JSON)) {
		r.json = append(r.json, jsonField{name, c.JSON[name]})
	}
	return r
}

// trusts tells whether the client is a proxy whose word is believed.
func (l *gate) trusts(addr netip.Addr) bool {
	for _, p := range l.trusted {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}

// matches looks at the request's head alone.
func (r *route) matches(q *wire.Request) bool {
	if r.method != "" && r.method != string(q.Method) {
		return false
	}
	if r.host != "" && !r.matchesHost(q.Host) {
		return false
	}
	if r.prefix != "" {
		path := q.Path()
		if len(path) < len(r.prefix) || string(path[:len(r.prefix)]) != r.prefix || len(path) > len(r.prefix) && path[len(r.prefix)] != '/' {
			return false
		}
	}
	for name, value := range r.headers {
		if !q.HasFieldValue(name, value) {
			return false
		}
	}
	return true
}

// matchesHost compares without the port and the root's dot.
func (r *route) matchesHost(authority []byte) bool {
	h := string(authority)
	if i := strings.LastIndexByte(h, ':'); i >= 0 && !strings.HasSuffix(h, "]") {
		h = h[:i]
	}
	h = strings.TrimSuffix(strings.ToLower(h), ".")
	if r.wildcard {
		return len(h) > len(r.host) && strings.HasSuffix(h, r.host)
	}
	return h == r.host
}

// address is where the listener listens, the port resolved once it does.
func (l *listener) address() string {
	if l.socket != nil {
		return l.socket.Addr().String()
	}
	return l.named
}
