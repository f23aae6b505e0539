package node

import (
	"reflect"

	"github.com/starling-lb/starling/gossip"
)

// ClusterConfig is what makes a node one of several. The zero one is a node
// alone; with any key set, bind has a default.
type ClusterConfig struct {
	Bind           string   `yaml:"bind"`      // of gossip, host:port, TCP and UDP
	Advertise      string   `yaml:"advertise"` // host that others reach; empty: bind's
	Seeds          []string `yaml:"seeds"`     // host:port of nodes to join by
	Label          string   `yaml:"label"`     // separates clusters that share a network
	GossipKeys     []string `yaml:"gossip_keys"`
	GossipKeysFile string   `yaml:"gossip_keys_file"`
	Insecure       bool     `yaml:"insecure"` // allow an address that is not loopback without keys
}

// On tells whether the node is one of several.
func (c ClusterConfig) On() bool { return c.Bind != "" }

func (c *ClusterConfig) complete() {
	if c.Bind == "" && !reflect.ValueOf(*c).IsZero() {
		c.Bind = gossip.DefaultBind
	}
}

func (c ClusterConfig) gossip() gossip.Config {
	return gossip.Config{
		Bind: c.Bind, Advertise: c.Advertise, Seeds: c.Seeds, Label: c.Label, Keys: c.GossipKeys, KeysFile: c.GossipKeysFile, Insecure: c.Insecure,
	}
}

func checkCluster(c ClusterConfig, f fault) {
	if c.On() {
		c.gossip().Validate(f)
	}
}
