package node

import (
	"cmp"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// overTLS stands before the address of an admin API that has a certificate.
const overTLS = "https://"

// tellAdmin is where this node's admin API is, as the others hear it.
func (n *Node) tellAdmin() string {
	cfg := n.cfg()
	at := adminTold(n.AdminAddr(), cfg.Admin.Address, cfg.Cluster.Advertise)
	if cfg.Admin.TLS.CertFile != "" {
		return overTLS + at
	}
	return at
}

// adminTold has the port on which the API listens, and the host as it is configured:
// a certificate may be for that name. Where that is every address of the machine,
// others reach it by the host that the node advertises.
func adminTold(listens, configured, advertise string) string {
	_, port, _ := net.SplitHostPort(listens)
	host, _, _ := net.SplitHostPort(configured)
	if host = cmp.Or(host, netip.IPv6Unspecified().String()); everywhere(host) {
		host = cmp.Or(advertise, host)
	}
	return net.JoinHostPort(host, port)
}

// adminOf is the address of a member's admin API, and its link: none where only the
// member's own machine reaches it, which is this one's where gossip is on loopback.
func adminOf(told string, gossip netip.Addr) (address, link string) {
	at, secure := strings.CutPrefix(told, overTLS)
	host, port, err := net.SplitHostPort(at)
	if _, bad := strconv.ParseUint(port, 10, 16); err != nil || bad != nil {
		return at, ""
	}
	if everywhere(host) && gossip.IsValid() {
		host = gossip.Unmap().String()
	}
	at = net.JoinHostPort(host, port)
	if everywhere(host) || ownMachine(host) && !gossip.Unmap().IsLoopback() {
		return at, ""
	}
	u := url.URL{Scheme: "http", Host: at, Path: "/"}
	if secure {
		u.Scheme = "https"
	}
	return at, u.String()
}

func everywhere(host string) bool {
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsUnspecified()
}

func ownMachine(host string) bool {
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback() || err != nil && strings.EqualFold(host, "localhost")
}
