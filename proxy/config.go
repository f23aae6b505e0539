package proxy

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/starling-lb/starling/proxy/backend"
)

// tokenChars is what the name of a header field is made of (RFC 9110, 5.6.2).
const tokenChars = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

// ListenerConfig is one address that clients connect to.
type ListenerConfig struct {
	Address          string      `yaml:"address"` // host:port; port 0 takes a free one
	TLS              ListenerTLS `yaml:"tls"`
	ProxyProtocol    bool        `yaml:"proxy_protocol"`            // v1 or v2, before TLS; a peer outside trusted_proxies is closed
	TrustedProxies   []string    `yaml:"trusted_proxies"`           // CIDRs whose X-Forwarded-* and request ids are believed
	MaxConnections   int         `yaml:"max_connections" auto:"-1"` // auto: (descriptor limit - 1000) / 2, at most 50000; 0: no limit
	MaxRequestHeader int64       `yaml:"max_request_header" unit:"size"`

	MaxClientConnections int `yaml:"max_client_connections"` // of one address, or IPv6 /64, outside trusted_proxies; 0: no limit

	ReadyPath string        `yaml:"ready_path"` // answers readiness on this listener; empty: off
	Routes    []RouteConfig `yaml:"routes"`     // the first match wins
}

// RouteConfig sends matching requests to a pool. Empty fields match anything.
type RouteConfig struct {
	Host       string            `yaml:"host"`        // without port; "*." in front matches any sub-domain
	PathPrefix string            `yaml:"path_prefix"` // ends at a segment: /v1 matches /v1 and /v1/x, not /v1x
	Method     string            `yaml:"method"`
	Headers    map[string]string `yaml:"headers"` // every field must be there with this value
	JSON       map[string]string `yaml:"json"`    // likewise every field at the top of a JSON body
	Pool       string            `yaml:"pool"`
}

// ClientTimeouts bound what a client may keep waiting. 0s: no limit.
type ClientTimeouts struct {
	RequestHeader time.Duration `yaml:"request_header"` // from the first byte of a request to the end of its head, in all
	KeepaliveIdle time.Duration `yaml:"keepalive_idle"` // between two requests of a connection
	WriteIdle     time.Duration `yaml:"write_idle"`     // without the client taking a byte
}

// PoolConfig is a set of backends for one kind of work and how streams to them
// are carried.
type PoolConfig struct {
	Policy    string                `yaml:"policy" enum:"p2c,round_robin,weighted_round_robin,random,least_connections,peak_ewma,least_response_time,consistent_hash,ip_hash"`
	Placement PlacementConfig       `yaml:"placement"`
	Backends  []backend.Config      `yaml:"backends" scalar:"url"`
	Backend   BackendConfig         `yaml:"backend"`
	Sources   backend.SourceConfig  `yaml:"discovery"`
	Health    backend.HealthConfig  `yaml:"health"`
	Outlier   backend.OutlierConfig `yaml:"outlier"`
	Retry     RetryConfig           `yaml:"retry"`
	Timeouts  StreamTimeouts        `yaml:"timeouts"`
	Limits    Limits                `yaml:"limits"`
	Headers   HeaderConfig          `yaml:"headers"`
	Queue     QueueConfig           `yaml:"queue"`
	Sticky    *SessionConfig        `yaml:"sticky"` // nil: the pool has no sessions

	Rebalance backend.RebalanceConfig `yaml:"rebalance"`
}

// BackendConfig holds what all backends of a pool share.
type BackendConfig struct {
	Engine     string     `yaml:"engine" enum:"auto,none,vllm,sglang,tgi,llamacpp"` // whose page tells load and cap; auto: whichever it is
	TLS        BackendTLS `yaml:"tls"`                                              // to those with an https URL
	MaxStreams int        `yaml:"max_streams"`                                      // at a time, of each backend that names no cap of its own; 0: no limit
	Host       string     `yaml:"host" enum:"preserve,backend"`                     // which Host header a backend sees: the client's, or its own

	SlowStart    time.Duration `yaml:"slow_start"`    // until a backend that comes, or comes back, has its whole share; 0s: at once
	DrainTimeout time.Duration `yaml:"drain_timeout"` // how long a drain of one waits for its streams before it is given up; 0s: for ever
}

// RetryConfig says which requests are tried again, and bounds how often. What no
// backend can have begun always may be; what one has begun only within these.
type RetryConfig struct {
	MaxAttempts    int      `yaml:"max_attempts"`                 // counts the first
	BudgetPercent  int      `yaml:"budget_percent"`               // of the pool's streams, that may be on a retry at a time, but at least 3; 0: none
	Methods        []string `yaml:"methods"`                      // idempotent ones
	MaxReplayBytes int64    `yaml:"max_replay_bytes" unit:"size"` // of a body that is kept until the answer; 0: none
}

// StreamTimeouts bound a stream. 0s: no limit.
type StreamTimeouts struct {
	Connect          time.Duration `yaml:"connect"`
	ResponseHeader   time.Duration `yaml:"response_header"`   // from the request's last byte to the end of the response head
	StreamIdle       time.Duration `yaml:"stream_idle"`       // without a byte from the backend, or taken by it
	StreamTotal      time.Duration `yaml:"stream_total"`      // a whole stream
	RequestBodyIdle  time.Duration `yaml:"request_body_idle"` // without a byte of the request's body
	BackendKeepalive time.Duration `yaml:"backend_keepalive"` // an unused connection to a backend
	TunnelIdle       time.Duration `yaml:"tunnel_idle"`       // after a change of protocol, without a byte either way
}

// Limits bound what one exchange may carry. 0: no limit.
type Limits struct {
	MaxRequestBody    int64 `yaml:"max_request_body" unit:"size"`
	MaxResponseHeader int64 `yaml:"max_response_header" unit:"size"`
}

// HeaderConfig says which fields starling adds.
type HeaderConfig struct {
	RequestID     string `yaml:"request_id"`     // name of the request id field; empty: none
	ExposeBackend bool   `yaml:"expose_backend"` // X-Starling-Backend on answers
}

// QueueConfig bounds who waits while every usable backend is full, and says when
// a client that was turned away may come back.
type QueueConfig struct {
	MaxWaiting int           `yaml:"max_waiting"` // streams, on this node; 0: none waits
	Timeout    time.Duration `yaml:"timeout"`     // 0s: no limit
	RetryAfter time.Duration `yaml:"retry_after"` // jittered by half either way
}

// DefaultListener is a listener with every default but its address.
func DefaultListener() ListenerConfig {
	return ListenerConfig{MaxConnections: -1, MaxRequestHeader: 64 << 10}
}

// DefaultRoute matches every request.
func DefaultRoute() RouteConfig { return RouteConfig{PathPrefix: "/"} }

// DefaultClientTimeouts holds the contract's defaults.
func DefaultClientTimeouts() ClientTimeouts {
	return ClientTimeouts{RequestHeader: 10 * time.Second, KeepaliveIdle: 2 * time.Minute, WriteIdle: time.Minute}
}

// DefaultPool is a pool with every default and no backend.
func DefaultPool() PoolConfig {
	return PoolConfig{
		Policy:    "p2c",
		Placement: DefaultPlacement(),
		Backend:   BackendConfig{Engine: "auto", Host: "preserve", DrainTimeout: 2 * time.Minute},
		Sources:   backend.DefaultSource(),
		Health:    backend.DefaultHealth(),
		Outlier:   backend.DefaultOutlier(),
		Retry: RetryConfig{
			MaxAttempts: 3, BudgetPercent: 20, Methods: []string{"GET", "HEAD", "OPTIONS", "PUT", "DELETE"}, MaxReplayBytes: 64 << 10,
		},
		Timeouts: StreamTimeouts{
			Connect: 2 * time.Second, StreamIdle: 5 * time.Minute, RequestBodyIdle: time.Minute, BackendKeepalive: 90 * time.Second, TunnelIdle: time.Hour,
		},
		Limits:  Limits{MaxResponseHeader: 64 << 10},
		Headers: HeaderConfig{RequestID: "X-Request-ID"},
		Queue:   QueueConfig{MaxWaiting: 32, Timeout: 5 * time.Second, RetryAfter: 2 * time.Second},

		Rebalance: backend.DefaultRebalance(),
	}
}

// Validate reports every fault by the key it concerns. That routes name pools
// which exist is the file's business, not the listener's.
func (c ListenerConfig) Validate(fault func(key, format string, args ...any)) {
	if c.Address == "" {
		fault("address", "is missing; write host:port, for example 127.0.0.1:8080")
	} else if _, port, err := net.SplitHostPort(c.Address); err != nil {
		fault("address", "%q is no address to listen on (%v); write host:port, for example 127.0.0.1:8080", c.Address, err)
	} else if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		fault("address", "%q has port %q; write a number from 0 (any free one) to 65535", c.Address, port)
	}
	c.TLS.Validate(fault)
	if c.ProxyProtocol && len(c.TrustedProxies) == 0 {
		fault("proxy_protocol", "is true, but trusted_proxies is empty, so every connection would be closed; name the network of what stands in front there, for example 10.0.0.0/8")
	}
	for i, s := range c.TrustedProxies {
		if _, err := netip.ParsePrefix(s); err != nil {
			fault(fmt.Sprintf("trusted_proxies[%d]", i), "%q is no CIDR; write for example 10.0.0.0/8", s)
		}
	}
	if c.MaxConnections < -1 {
		fault("max_connections", "%d is negative; write auto, 0 for no limit, or a count", c.MaxConnections)
	}
	if c.MaxClientConnections < 0 {
		fault("max_client_connections", "%d is negative; write 0 for no limit, or a count such as 500", c.MaxClientConnections)
	}
	if c.MaxRequestHeader < 1<<10 || c.MaxRequestHeader > 1<<20 {
		fault("max_request_header", "%d bytes is out of range; write 1KiB to 1MiB", c.MaxRequestHeader)
	}
	if c.ReadyPath != "" && !strings.HasPrefix(c.ReadyPath, "/") {
		fault("ready_path", "%q does not begin with /; write for example /ready", c.ReadyPath)
	}
}

// Validate reports every fault by the key it concerns.
func (c RouteConfig) Validate(fault func(key, format string, args ...any)) {
	if !strings.HasPrefix(c.PathPrefix, "/") {
		fault("path_prefix", "%q does not begin with /; write for example /v1", c.PathPrefix)
	}
	if strings.Contains(strings.TrimPrefix(c.Host, "*."), "*") {
		fault("host", "%q has a wildcard inside; only *. in front is one, for example *.example.com", c.Host)
	}
	if strings.Contains(c.Host, ":") && !strings.HasPrefix(c.Host, "[") {
		fault("host", "%q carries a port; write the host alone", c.Host)
	}
	if c.Method != strings.ToUpper(c.Method) {
		fault("method", "%q: methods are case-sensitive; write %s", c.Method, strings.ToUpper(c.Method))
	} else if strings.Trim(c.Method, tokenChars) != "" {
		fault("method", "%q is no method; write for example POST", c.Method)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Headers)) {
		if name == "" || strings.Trim(name, tokenChars) != "" {
			fault("headers", "%q is no field name; write for example {X-Kind: batch}", name)
		}
	}
	if _, ok := c.JSON[""]; ok {
		fault("json", "has a field without a name; write for example {model: small}")
	}
	if c.Pool == "" {
		fault("pool", "is missing; write the name of a pool")
	}
}

// Validate reports every fault by the key it concerns.
func (c PoolConfig) Validate(fault func(key, format string, args ...any)) {
	c.Health.Validate(func(key, format string, args ...any) { fault("health."+key, format, args...) })
	c.Outlier.Validate(func(key, format string, args ...any) { fault("outlier."+key, format, args...) })
	c.Rebalance.Validate(func(key, format string, args ...any) { fault("rebalance."+key, format, args...) })
	c.Backend.TLS.Validate(func(key, format string, args ...any) { fault("backend."+key, format, args...) })
	c.Placement.Validate(func(key, format string, args ...any) { fault("placement."+key, format, args...) })
	c.Sources.Validate(func(key, format string, args ...any) { fault("discovery."+key, format, args...) })
	if c.Sticky != nil {
		c.Sticky.Validate(func(key, format string, args ...any) { fault("sticky."+key, format, args...) })
	}
	c.Retry.Validate(func(key, format string, args ...any) { fault("retry."+key, format, args...) })
	if c.Backend.MaxStreams < 0 {
		fault("backend.max_streams", "%d is negative; write 0 for no limit, or a count such as 16", c.Backend.MaxStreams)
	}
	if c.Queue.MaxWaiting < 0 || c.Queue.MaxWaiting > maxWaiting {
		fault("queue.max_waiting", "%d is out of range; write 0 (none waits) to %d", c.Queue.MaxWaiting, maxWaiting)
	}
	if c.Limits.MaxResponseHeader < 1<<10 || c.Limits.MaxResponseHeader > 1<<20 {
		fault("limits.max_response_header", "%d bytes is out of range; write 1KiB to 1MiB", c.Limits.MaxResponseHeader)
	}
	if strings.Trim(c.Headers.RequestID, tokenChars) != "" {
		fault("headers.request_id", "%q is no field name; write for example X-Request-ID", c.Headers.RequestID)
	}
}
