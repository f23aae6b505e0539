package node

import (
	"net"
	"reflect"

	"github.com/starling-lb/starling/consensus/transport"
	"github.com/starling-lb/starling/gossip"
)

// ClusterConfig is what makes a node one of several. The zero one is a node
// alone; with any key set, bind, rpc and bootstrap_expect have defaults.
type ClusterConfig struct {
	Bind            string        `yaml:"bind"`             // of gossip, host:port, TCP and UDP
	RPC             string        `yaml:"rpc"`              // of Raft and node calls, host:port, TCP
	Advertise       string        `yaml:"advertise"`        // host that others reach; empty: bind's
	Seeds           []string      `yaml:"seeds"`            // host:port of nodes to join by
	BootstrapExpect int           `yaml:"bootstrap_expect"` // nodes that a new cluster begins with
	Label           string        `yaml:"label"`            // separates clusters that share a network
	GossipKeys      []string      `yaml:"gossip_keys"`
	GossipKeysFile  string        `yaml:"gossip_keys_file"`
	TLS             transport.TLS `yaml:"tls"`      // mutual, of rpc
	Insecure        bool          `yaml:"insecure"` // allow an address that is not loopback without keys and tls
}

const (
	defaultExpect = 3
	maxExpect     = 64
)

// On tells whether the node is one of several.
func (c ClusterConfig) On() bool { return c.Bind != "" }

func (c *ClusterConfig) complete() {
	if reflect.ValueOf(*c).IsZero() {
		return
	}
	if c.Bind == "" {
		c.Bind = gossip.DefaultBind
	}
	if c.RPC == "" {
		c.RPC = transport.DefaultConfig().Address
	}
	if c.BootstrapExpect == 0 {
		c.BootstrapExpect = defaultExpect
	}
}

func (c ClusterConfig) gossip() gossip.Config {
	return gossip.Config{
		Bind: c.Bind, Advertise: c.Advertise, Seeds: c.Seeds, Label: c.Label, Keys: c.GossipKeys, KeysFile: c.GossipKeysFile, Insecure: c.Insecure,
	}
}

func (c ClusterConfig) rpc() transport.Config {
	return transport.Config{Address: c.RPC, TLS: c.TLS, Insecure: c.Insecure}
}

func checkCluster(c ClusterConfig, f fault) {
	if !c.On() {
		return
	}
	c.gossip().Validate(f)
	c.rpc().Validate(f)
	checkPair(c.TLS.CertFile, c.TLS.KeyFile, under("tls", f))
	checkSigners("ca_file", c.TLS.CAFile, under("tls", f))
	if c.BootstrapExpect < 1 || c.BootstrapExpect > maxExpect {
		f("bootstrap_expect", "%d is out of range; write how many nodes the cluster begins with, 1 to %d", c.BootstrapExpect, maxExpect)
	}
	if near(c.RPC) && !near(c.Bind) {
		f("rpc", "%s is reached from this machine alone, and bind %s from others too; write an address that they reach, and tls", c.RPC, c.Bind)
	}
}

// near tells whether only this machine reaches an address.
func near(address string) bool {
	host, _, err := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	return err == nil && (host == "localhost" || ip != nil && ip.IsLoopback())
}
