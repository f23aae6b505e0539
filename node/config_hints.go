package node

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/starling-lb/starling/proxy"
	"github.com/starling-lb/starling/proxy/backend"
)

// Hints names what is allowed but probably not meant, as KEY: TEXT.
func Hints(c Config) []string {
	var out []string
	hint := func(key, format string, args ...any) { out = append(out, key+": "+fmt.Sprintf(format, args...)) }
	hintAdmin(c, hint)
	hintCluster(c, hint)
	hintWaits(c.Timeouts, hint)
	for i, l := range c.Listeners {
		hintListener(l, under(fmt.Sprintf("listeners[%d]", i), hint))
	}
	for _, name := range poolNames(c) {
		hintPool(c, name, under("pools."+name, hint))
	}
	return out
}

func hintAdmin(c Config, hint fault) {
	host, _, err := net.SplitHostPort(c.Admin.Address)
	ip, _ := netip.ParseAddr(host)
	if err != nil || host == "localhost" || ip.IsLoopback() {
		return
	}
	if c.Admin.TLS.CertFile == "" {
		hint("admin.tls", "is not set, so the token crosses the network in clear; name a certificate")
	}
	if !c.Admin.MetricsToken {
		hint("admin.metrics_token", "is false, so anyone who reaches %s reads /metrics", c.Admin.Address)
	}
}

func hintCluster(c Config, hint fault) {
	own, seeds := c.Cluster, len(c.Cluster.Seeds)
	switch {
	case !own.On() && !c.Shards.Host:
		hint("shards.host", "is false on a node alone, so nobody keeps its sessions; leave it out")
	case own.On() && own.BootstrapExpect == 1 && seeds > 0:
		hint("cluster.bootstrap_expect", "1 founds a cluster of its own once all seeds have answered and none has one, and waits while one does not; write how many nodes begin together")
	case own.On() && own.BootstrapExpect == 2:
		hint("cluster.bootstrap_expect", "2 nodes survive the loss of neither: what is agreed is kept by one of them, until there are three")
	}
}

func hintWaits(t proxy.ClientTimeouts, hint fault) {
	unbounded := func(key string, d time.Duration, who string) {
		if d == 0 {
			hint("timeouts."+key, "has no limit, so %s holds its connection for ever", who)
		}
	}
	unbounded("request_header", t.RequestHeader, "a client that never ends its request")
	unbounded("keepalive_idle", t.KeepaliveIdle, "a client that asks nothing more")
	unbounded("write_idle", t.WriteIdle, "a client that reads nothing")
}

func hintListener(l proxy.ListenerConfig, hint fault) {
	for i, s := range l.TrustedProxies {
		if p, err := netip.ParsePrefix(s); err == nil && p.Bits() == 0 {
			hint(fmt.Sprintf("trusted_proxies[%d]", i), "believes any client's word on where it comes from; name your proxies' networks")
		}
	}
	for i, r := range l.Routes {
		if all := r.Host == "" && r.PathPrefix == "/" && r.Method == "" && len(r.Headers) == 0 && len(r.JSON) == 0; all && i+1 < len(l.Routes) {
			hint(fmt.Sprintf("routes[%d]", i), "matches every request, so no route below it is ever used; put it last")
			return
		}
	}
}

func hintPool(c Config, name string, hint fault) {
	p := c.Pools[name]
	used := slices.ContainsFunc(c.Listeners, func(l proxy.ListenerConfig) bool {
		return slices.ContainsFunc(l.Routes, func(r proxy.RouteConfig) bool { return r.Pool == name })
	})
	if !used {
		hint("backends", "serve nobody: no route names the pool")
	}
	if total, drain := p.Timeouts.StreamTotal, c.Node.DrainTimeout; total > 0 && drain > 0 && drain < 2*total {
		hint("timeouts.stream_total", "%v is more than half of node.drain_timeout (%v), so a drain may cut streams; let a drain last twice the longest stream", total, drain)
	}
	if p.Backend.TLS != (proxy.BackendTLS{}) && !slices.ContainsFunc(p.Backends, func(b backend.Config) bool { return strings.HasPrefix(b.URL, "https:") }) {
		hint("backend.tls", "is for backends with an https url, and none has one; write https, or take it out")
	}
	hintPlacement(p, hint)
	if p.Sticky != nil {
		hintSessions(p, hint)
	}
	if p.Timeouts.StreamIdle == 0 && p.Timeouts.StreamTotal == 0 {
		hint("timeouts.stream_idle", "has no limit, nor has stream_total, so a backend that hangs holds its streams for ever")
	}
}

func hintPlacement(p proxy.PoolConfig, hint fault) {
	byClient := p.Policy == backend.IPHash || p.Policy == backend.ConsistentHash && p.Placement.HashKey == "client_ip"
	if byClient {
		hint("policy", "%s goes by the client's address: clients behind one NAT or proxy share a backend; hash a header or cookie where there is one", p.Policy)
	}
	unlike := slices.ContainsFunc(p.Backends, func(b backend.Config) bool { return b.Weight != p.Backends[0].Weight })
	if p.Policy == backend.StepTime && unlike {
		hint("backends", "have unlike weights, but p2c measures how fast each is: a weight comes on top of that; leave them out where they only say how fast")
	}
	if p.Backend.SlowStart > 10*time.Minute {
		hint("backend.slow_start", "%v is long: until then the others carry a new backend's part", p.Backend.SlowStart)
	}
}

func hintSessions(p proxy.PoolConfig, hint fault) {
	s, total := p.Sticky, p.Timeouts.StreamTotal
	if s.TTL > 0 && total > 0 && s.TTL < total {
		hint("sticky.ttl", "%v is shorter than timeouts.stream_total (%v), the longest stream: a conversation may be forgotten while its client still reads; let it last as long as the longest pause between two turns", s.TTL, total)
	}
	if drain := p.Backend.DrainTimeout; total > 0 && drain > 0 && drain < 2*total {
		hint("backend.drain_timeout", "%v is less than twice timeouts.stream_total (%v), and the sessions of a backend that drains are moved between their turns: a long one may keep its session there; let a drain last twice the longest stream", drain, total)
	}
	if i := slices.Index(s.Key, "client_ip"); i >= 0 {
		hint(fmt.Sprintf("sticky.key[%d]", i), "clients behind one NAT or proxy are one session then, on one backend; name a header or cookie where there is one")
		if i+1 < len(s.Key) {
			hint(fmt.Sprintf("sticky.key[%d]", i+1), "is never looked for, since every request has a client_ip before it; put client_ip last")
		}
	}
	if s.Cookie.TTL > 0 && s.TTL > s.Cookie.TTL {
		hint("sticky.cookie.ttl", "%v is shorter than sticky.ttl (%v), so browsers forget a session before starling does", s.Cookie.TTL, s.TTL)
	}
}
