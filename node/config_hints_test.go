package node

import (
	"strings"
	"testing"
	"time"

	"github.com/starling-lb/starling/proxy"
	"github.com/starling-lb/starling/proxy/backend"
)

func TestHints(t *testing.T) {
	for _, tt := range []struct {
		want   string // how the only hint begins; "" for none
		change func(*Config)
	}{
		{"", func(*Config) {}},
		{"pools.llm.timeouts.stream_total: 2m0s is more than half", func(c *Config) { setWaits(c, 0, 2*time.Minute) }},
		{"", func(c *Config) { setWaits(c, time.Minute, time.Minute) }},
		{"", func(c *Config) { c.Node.DrainTimeout = 0; setWaits(c, 0, time.Hour) }},
		{"pools.llm.timeouts.stream_idle: has no limit", func(c *Config) { setWaits(c, 0, 0) }},
		{"pools.more.backends: serve nobody", func(c *Config) { c.Pools["more"] = c.Pools["llm"] }},
		{"pools.llm.backend.tls: is for backends with an https url", func(c *Config) {
			p := c.Pools["llm"]
			p.Backend.TLS.ServerName = "b.test"
			c.Pools["llm"] = p
		}},
		{"pools.llm.policy: ip_hash goes by the client's address", func(c *Config) { setPolicy(c, backend.IPHash, "") }},
		{"pools.llm.policy: consistent_hash goes by", func(c *Config) { setPolicy(c, backend.ConsistentHash, "client_ip") }},
		{"", func(c *Config) { setPolicy(c, backend.ConsistentHash, "header:X-User") }},
		{"pools.llm.backends: have unlike weights", func(c *Config) { setWeights(c, backend.StepTime) }},
		{"", func(c *Config) { setWeights(c, backend.WeightedRoundRobin) }},
		{"pools.llm.backend.slow_start: 1h0m0s is long", func(c *Config) {
			p := c.Pools["llm"]
			p.Backend.SlowStart = time.Hour
			c.Pools["llm"] = p
		}},
		{"pools.llm.sticky.ttl: 1m0s is shorter than", func(c *Config) { c.Node.DrainTimeout = 0; setSessions(c, time.Minute, 0, 2*time.Minute) }},
		{"pools.llm.backend.drain_timeout: 30m0s is less", func(c *Config) { c.Node.DrainTimeout = 0; setSessions(c, time.Hour, 0, 15*time.Minute+1) }},
		{"", func(c *Config) { c.Node.DrainTimeout = 0; setSessions(c, time.Hour, time.Hour, 15*time.Minute) }},
		{"pools.llm.sticky.key[0]: clients behind one NAT", func(c *Config) { setSessions(c, 0, 0, 0, "client_ip") }},
		{"pools.llm.sticky.cookie.ttl: 1m0s is shorter", func(c *Config) { setSessions(c, time.Hour, time.Minute, 0) }},
		{"timeouts.request_header: has no limit", func(c *Config) { c.Timeouts.RequestHeader = 0 }},
		{"timeouts.keepalive_idle: has no limit", func(c *Config) { c.Timeouts.KeepaliveIdle = 0 }},
		{"timeouts.write_idle: has no limit", func(c *Config) { c.Timeouts.WriteIdle = 0 }},
		{"listeners[0].trusted_proxies[1]: believes any", func(c *Config) { c.Listeners[0].TrustedProxies = []string{"10.0.0.0/8", "::/0"} }},
		{"listeners[0].routes[0]: matches every request", func(c *Config) {
			c.Listeners[0].Routes = append(c.Listeners[0].Routes, proxy.RouteConfig{PathPrefix: "/v1", Pool: "llm"})
		}},
		{"", func(c *Config) {
			c.Listeners[0].Routes = append([]proxy.RouteConfig{{PathPrefix: "/v1", Pool: "llm"}}, c.Listeners[0].Routes...)
		}},
		{"", func(c *Config) {
			c.Listeners[0].Routes = append([]proxy.RouteConfig{{PathPrefix: "/", JSON: map[string]string{"model": "small"}, Pool: "llm"}}, c.Listeners[0].Routes...)
		}},
		{"admin.tls: is not set", func(c *Config) { c.Admin.Address, c.Admin.MetricsToken = "10.0.0.1:9901", true }},
		{"admin.metrics_token: is false", func(c *Config) { c.Admin.Address, c.Admin.TLS.CertFile = ":9901", "lb.crt" }},
		{"", func(c *Config) { c.Admin.Address = "localhost:9901" }},
		{"shards.host: is false on a node alone", func(c *Config) { c.Shards.Host = false }},
		{"cluster.bootstrap_expect: 1 founds", func(c *Config) { c.Cluster = ClusterConfig{Bind: "a:1", Seeds: []string{"b:1"}, BootstrapExpect: 1} }},
		{"cluster.bootstrap_expect: 2 nodes survive", func(c *Config) { c.Cluster = ClusterConfig{Bind: "a:1", BootstrapExpect: 2} }},
		{"", func(c *Config) { c.Cluster = ClusterConfig{Bind: "a:1", BootstrapExpect: 1} }},
	} {
		c := full()
		tt.change(&c)
		switch got := Hints(c); {
		case tt.want == "" && len(got) > 0:
			t.Errorf("hints %q, want none", got)
		case tt.want != "" && (len(got) != 1 || !strings.HasPrefix(got[0], tt.want)):
			t.Errorf("hints %q, want only %q", got, tt.want)
		}
	}
}

func setWaits(c *Config, idle, total time.Duration) {
	p := c.Pools["llm"]
	p.Timeouts.StreamIdle, p.Timeouts.StreamTotal, p.Sticky = idle, total, nil // sessions have hints of their own
	c.Pools["llm"] = p
}

func setPolicy(c *Config, policy, key string) {
	p := c.Pools["llm"]
	p.Policy, p.Placement.HashKey = policy, key
	c.Pools["llm"] = p
}

func setWeights(c *Config, policy string) {
	setPolicy(c, policy, "client_ip")
	p := c.Pools["llm"]
	p.Backends = []backend.Config{{URL: "http://h:1", Weight: 1}, {URL: "http://h:2", Weight: 2}}
	c.Pools["llm"] = p
}

// setSessions also has a backend's drain last half an hour.
func setSessions(c *Config, ttl, cookie, total time.Duration, keys ...string) {
	p, s := c.Pools["llm"], proxy.DefaultSession()
	s.TTL, s.Cookie.TTL, p.Timeouts.StreamTotal, p.Backend.DrainTimeout = ttl, cookie, total, 30*time.Minute
	if keys != nil {
		s.Key = keys
	}
	p.Sticky = &s
	c.Pools["llm"] = p
}

// What stands behind client_ip is named too: it is dead.
func TestHintKeyBehindAddress(t *testing.T) {
	c := full()
	setSessions(&c, 0, 0, 0, "client_ip", "header:X-Session-ID")
	if got := Hints(c); len(got) != 2 || !strings.HasPrefix(got[1], "pools.llm.sticky.key[1]: is never looked for") {
		t.Errorf("hints %q", got)
	}
}
