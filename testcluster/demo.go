package testcluster

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/starling-lb/starling/node"
	"github.com/starling-lb/starling/proxy"
	"github.com/starling-lb/starling/testcluster/llm"
)

// DemoBackend is a backend that people can follow by eye, and of which a laptop
// can run several: with the default load, three of them have some ten streams
// each, of some 45 tokens per second.
func DemoBackend() llm.Options { return llm.Options{Decode: 60, Prefill: 8000, Knee: 32} }

// DemoSessions is how many sessions a demo's load has.
const DemoSessions = 100

// DemoConfig has sessions, and a backend come back a few seconds after it was
// started again, where the defaults have longer streams than a demo in mind.
func DemoConfig(cfg *node.Config) {
	pool := cfg.Pools[PoolName]
	pool.Outlier.BaseEjection, pool.Outlier.MaxEjection = 2*time.Second, 4*time.Second
	pool.Health.Interval, pool.Health.DownInterval = time.Second, time.Second
	sticky := proxy.DefaultSession()
	sticky.EpochHeader = "X-Starling-Epoch" // the demo backends note it
	pool.Sticky = &sticky
	cfg.Pools[PoolName] = pool
}

// AwaitSessions returns when every node keeps sessions: until nodes have founded
// a cluster and its shards have leaders, each places them as it likes. It waits
// for most at most, and then says which node lacks what.
func (c *Cluster) AwaitSessions(ctx context.Context, most time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		why := c.keepsSessions()
		if why == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("await that all nodes keep sessions: %w: last: %w", context.Cause(ctx), why)
		}
	}
}

func (c *Cluster) keepsSessions() error {
	for _, n := range c.nodes {
		switch s := n.Status(); {
		case s.Shards.Count == 0:
			return fmt.Errorf("%s has no cluster: %s", n.Name, s.Cluster.Waits)
		case s.Shards.WithoutLeader > 0:
			return fmt.Errorf("%s knows %d shards that nobody leads", n.Name, s.Shards.WithoutLeader)
		}
	}
	return nil
}

// Guide says in words for people what runs where and how to use it.
func (c *Cluster) Guide() string {
	var b strings.Builder
	n := c.Node(0)
	what := "one starling"
	if len(c.nodes) > 1 {
		what = fmt.Sprintf("%d starlings, one cluster,", len(c.nodes))
	}
	fmt.Fprintf(&b, "%s and %d demo LLM backends are running\n\n", what, len(c.backends))
	for _, n := range c.nodes {
		fmt.Fprintf(&b, "  proxy  %s\n", n.URL())
	}
	try := "the dashboard, in a browser; try /v1/status, /v1/backends, /metrics"
	for _, n := range c.nodes {
		fmt.Fprintf(&b, "  admin  %s  %s\n", n.AdminURL(), try)
		try = "its dashboard; try /v1/members"
	}
	for _, d := range c.backends {
		fmt.Fprintf(&b, "  %-5s  %s  its switches: %s/control/faults\n", d.ID, d.URL(), d.ControlURL())
	}
	fmt.Fprintf(&b, "\nwatch an answer come, token by token, in another terminal:\n\n")
	fmt.Fprintf(&b, "  curl -N %s/v1/chat/completions -H 'Content-Type: application/json' -d '{\"stream\":true,\"messages\":[{\"role\":\"user\",\"content\":\"Tell me about starlings.\"}]}'\n", n.URL())
	fmt.Fprintf(&b, "\nturns of one session stay at one backend, whichever node they come by:\n\n")
	last := c.nodes[len(c.nodes)-1]
	fmt.Fprintf(&b, "  for n in %s %s; do curl -s -D - -o /dev/null -H 'X-Session-ID: me' $n/v1/models | grep -i %s; done\n", n.URL(), last.URL(), llm.BackendHeader)
	if len(c.backends) > 0 {
		first := c.backends[0]
		fmt.Fprintf(&b, "\nmake %s hang, and mend it:\n\n", first.ID)
		fmt.Fprintf(&b, "  curl -X PUT %s/control/faults -d '{\"hang\":true}'\n", first.ControlURL())
		fmt.Fprintf(&b, "  curl -X PUT %s/control/faults -d '{}'\n", first.ControlURL())
	}
	fmt.Fprintf(&b, "\nctrl-C ends all of it\n\n")
	return b.String()
}
