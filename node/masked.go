package node

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/starling-lb/starling/node/api"
	"github.com/starling-lb/starling/node/yamlstrict"
)

// mask stands where a secret was.
const mask = "***"

// Configuration answers GET /v1/config.
func (n *Node) Configuration() (api.Config, error) {
	c := n.cfg()
	text, err := yamlstrict.Encode(c.masked())
	if err != nil {
		return api.Config{}, err
	}
	out := api.Config{Hash: c.Hash(), File: n.opt.File, Read: n.reloads.read(), YAML: string(text)}
	if err := yaml.Unmarshal(text, &out.Config); err != nil {
		return api.Config{}, fmt.Errorf("read what was printed: %w", err)
	}
	return out, nil
}

// masked is the configuration without what gives access: keys, credentials in
// addresses, and what header fields must hold where their names speak of secrets.
// Files with secrets are named, and not read.
func (c Config) masked() Config {
	c.Cluster.GossipKeys = slices.Clone(c.Cluster.GossipKeys)
	for i := range c.Cluster.GossipKeys {
		c.Cluster.GossipKeys[i] = mask
	}
	if u, err := url.Parse(c.Tracing.OTLPEndpoint); err == nil && u.User != nil {
		u.User = url.User(mask)
		c.Tracing.OTLPEndpoint = strings.Replace(u.String(), url.User(mask).String(), mask, 1)
	}
	c.Listeners = slices.Clone(c.Listeners)
	for i := range c.Listeners {
		routes := slices.Clone(c.Listeners[i].Routes)
		for j := range routes {
			routes[j].Headers = maskedFields(routes[j].Headers)
		}
		c.Listeners[i].Routes = routes
	}
	return c
}

func maskedFields(fields map[string]string) map[string]string {
	out := maps.Clone(fields)
	for name := range out {
		for _, word := range []string{"auth", "cookie", "key", "token", "secret", "password"} {
			if strings.Contains(strings.ToLower(name), word) {
				out[name] = mask
			}
		}
	}
	return out
}
