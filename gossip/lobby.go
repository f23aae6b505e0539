package gossip

import (
	"net"
	"net/netip"
	"sync"
)

// lobby is the streams that others opened. Anybody may open any number and say
// nothing, so there is a bound, and who has said nothing good yet makes room for
// newcomers: the one that has waited longest, of the address that holds most.
// A stranger at one address thus keeps out nobody but itself.
type lobby struct {
	mu   sync.Mutex
	list []*guest // in the order they came
}

// guest is one of them.
type guest struct {
	conn  net.Conn
	host  string
	known bool // it said something that could be read
}

// enter gives a stream a place, or not: g is nil then. Out is who has to go: one
// that made room, or the stream itself.
func (l *lobby) enter(conn net.Conn) (g *guest, out net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	g = &guest{conn: conn, host: hostOf(conn.RemoteAddr())}
	all, strangers := l.count()
	full := ""
	switch {
	case all[g.host] >= maxPerHost:
		full = g.host
	case len(l.list) >= maxStreams:
		for host, n := range strangers {
			if n > strangers[full] {
				full = host
			}
		}
	default:
		l.list = append(l.list, g)
		return g, nil
	}
	for i, old := range l.list {
		if old.host == full && !old.known {
			l.list = append(append(l.list[:i:i], l.list[i+1:]...), g)
			return g, old.conn
		}
	}
	return nil, conn
}

// count is how many each address has, and of them how many that said nothing
// good yet.
func (l *lobby) count() (all, strangers map[string]int) {
	all, strangers = map[string]int{}, map[string]int{}
	for _, g := range l.list {
		all[g.host]++
		if !g.known {
			strangers[g.host]++
		}
	}
	return all, strangers
}

// hostOf is who an address belongs to, as far as that can be told: of IPv6
// everybody has a network of 64 bits.
func hostOf(a net.Addr) string {
	at, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return a.String()
	}
	host := at.Addr().Unmap().WithZone("")
	if host.Is6() && !host.IsLoopback() {
		return netip.PrefixFrom(host, 64).Masked().String()
	}
	return host.String()
}

// vouch keeps a stream's place from now on.
func (l *lobby) vouch(g *guest) {
	l.mu.Lock()
	defer l.mu.Unlock()
	g.known = true
}

// leave gives a place back; a second time, or after making room, does nothing.
func (l *lobby) leave(g *guest) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, old := range l.list {
		if old == g {
			l.list = append(l.list[:i:i], l.list[i+1:]...)
			return
		}
	}
}

// len is how many places are taken.
func (l *lobby) len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.list)
}
