package node

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"

	"github.com/starling-lb/starling/node/yamlstrict"
	"github.com/starling-lb/starling/proxy"
)

// fault reports what is wrong at a key of the file.
type fault = func(key, format string, args ...any)

// under makes the keys that a section reports those of the file.
func under(section string, f fault) fault {
	return func(key, format string, args ...any) { f(section+"."+key, format, args...) }
}

// check asks each section about itself, and finds what none of them can know
// alone.
func check(c Config, r *yamlstrict.Report) {
	checkSelf(c.Node, under("node", r.Fault))
	checkFiles(c.Admin, under("admin", r.Fault)) // before Validate, which only sees that they exist
	checkCluster(c.Cluster, under("cluster", r.Fault))
	c.Shards.Validate(under("shards", r.Fault))
	c.Admin.Validate(under("admin", r.Fault))
	c.Tracing.Validate(under("tracing", r.Fault))
	if len(c.Listeners) == 0 {
		r.Fault("listeners", "is missing or empty; write at least one, such as - address: 127.0.0.1:8080")
	}
	for i, l := range c.Listeners {
		f := under(fmt.Sprintf("listeners[%d]", i), r.Fault)
		l.Validate(f)
		checkDoor(l.TLS, under("tls", f))
		if len(l.Routes) == 0 && len(c.Pools) > 1 {
			f("routes", "is missing, and there are several pools; write routes that name %s", strings.Join(poolNames(c), ", "))
		}
		for j, route := range l.Routes {
			route.Validate(under(fmt.Sprintf("routes[%d]", j), f))
		}
	}
	if len(c.Pools) == 0 {
		r.Fault("pools", "is missing or empty; write at least one with its backends")
	}
	for _, name := range poolNames(c) {
		checkPool(name, c.Pools[name], r.Fault)
	}
	if !r.Wrong("pools") {
		checkTargets(c, r.Fault)
	}
	checkIDs(c, r.Fault)
	checkPorts(c, r.Fault)
}

func poolNames(c Config) []string { return slices.Sorted(maps.Keys(c.Pools)) }

func checkSelf(s Self, f fault) {
	if s.Name == "" {
		f("name", "is missing, and the host has no name; write one of letters, digits, and _ . -")
	} else if !isName(s.Name) {
		f("name", "%q: write up to 63 letters, digits, and _ . -", s.Name)
	}
	if s.Zone != "" && !isName(s.Zone) {
		f("zone", "%q is no name; write up to 63 letters, digits, and _ . -", s.Zone)
	}
	if s.DataDir == "" {
		f("data_dir", "is empty; write a directory of this node alone, such as ./starling-data")
	}
}

// isName tells whether a name can stand in metrics, paths and other nodes'
// tables as it is.
func isName(s string) bool {
	const good = "_.-0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	return s != "" && len(s) <= 63 && strings.Trim(s, good) == ""
}

func checkPool(name string, p proxy.PoolConfig, f fault) {
	key := yamlstrict.Join("pools", name)
	if !isName(name) {
		f(key, "is no name for a pool; write up to 63 letters, digits, and _ . -")
	}
	p.Validate(under(key, f))
	checkWayOut(p.Backend.TLS, under(key+".backend.tls", f))
	if len(p.Backends) == 0 && !p.Sources.On() {
		f(key+".backends", "is missing or empty; write at least one, such as http://127.0.0.1:9001")
	}
	checkList(p.Sources.File, under(key+".discovery", f))
	for i, b := range p.Backends {
		b.Validate(under(fmt.Sprintf("%s.backends[%d]", key, i), f))
	}
}

// checkTargets finds routes to pools that are not there.
func checkTargets(c Config, f fault) {
	names := poolNames(c)
	for i, l := range c.Listeners {
		for j, route := range l.Routes {
			if _, ok := c.Pools[route.Pool]; ok || len(names) == 0 {
				continue
			}
			advice := "write one of " + strings.Join(names, ", ")
			if near := yamlstrict.Nearest(route.Pool, names); near != "" {
				advice = "did you mean " + near + "?"
			}
			f(fmt.Sprintf("listeners[%d].routes[%d].pool", i, j), "there is no pool %q; %s", route.Pool, advice)
		}
	}
}

// checkIDs finds ids that stand twice, in one pool or in two.
func checkIDs(c Config, f fault) {
	first := map[string]string{}
	for _, name := range poolNames(c) {
		for i, b := range c.Pools[name].Backends {
			key := fmt.Sprintf("%s.backends[%d]", yamlstrict.Join("pools", name), i)
			other, twice := first[b.ID]
			if twice && b.ID != "" {
				f(key+".id", "%q is also the id of %s, and ids are unique over all pools; write another", b.ID, other)
				continue
			}
			first[b.ID] = key
		}
	}
}

// checkPorts finds two addresses that cannot be listened on together.
func checkPorts(c Config, f fault) {
	type spot struct{ key, host string }
	taken := map[string][]spot{} // by port
	claim := func(key, address string) {
		host, port, err := net.SplitHostPort(address)
		if err != nil || strings.Trim(port, "0") == "" {
			return // no address, or any free port
		}
		if host == "localhost" {
			host = "127.0.0.1"
		}
		for _, s := range taken[port] {
			if s.host == host || anyHost(s.host) || anyHost(host) {
				f(key, "port %s is taken by %s; write another", port, s.key)
				return
			}
		}
		taken[port] = append(taken[port], spot{key, host})
	}
	for i, l := range c.Listeners {
		claim(fmt.Sprintf("listeners[%d].address", i), l.Address)
	}
	claim("cluster.bind", c.Cluster.Bind)
	claim("cluster.rpc", c.Cluster.RPC)
	claim("admin.address", c.Admin.Address)
}

func anyHost(host string) bool { return host == "" || net.ParseIP(host).IsUnspecified() }
