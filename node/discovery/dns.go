package discovery

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/miekg/dns"

	"github.com/starling-lb/starling/proxy/backend"
)

// Lookup answers one question to DNS with all its records of the asked type.
type Lookup func(ctx context.Context, name string, kind uint16) ([]dns.RR, error)

// Errors of a look at DNS.
var (
	errNoName    = errors.New("DNS has no such name")
	errNoRecords = errors.New("DNS has the name, but no record of this kind")
)

// addresses are the backends behind the addresses of a name.
func (f *Finder) addresses(ctx context.Context, t backend.Target) ([]backend.Config, time.Duration, error) {
	found, ttl, err := f.resolve(ctx, t.Host)
	if err != nil {
		return nil, f.again(backend.MinSourceInterval), err
	}
	var list []backend.Config
	for _, a := range found {
		list = append(list, named(t.URL(a.String(), t.Port), net.JoinHostPort(a.String(), t.Port)))
	}
	return list, f.again(ttl), nil
}

// resolve asks for A and AAAA. Where one of them fails, what it said last
// counts. What DNS does not know, the system may (a hosts file); that has no TTL.
func (f *Finder) resolve(ctx context.Context, name string) ([]netip.Addr, time.Duration, error) {
	v4, ttl4, err4 := f.family(ctx, name, dns.TypeA)
	v6, ttl6, err6 := f.family(ctx, name, dns.TypeAAAA)
	switch found := append(v4, v6...); {
	case lost(err4) && lost(err6):
		return nil, 0, fmt.Errorf("%s: %w", name, errors.Join(err4, err6))
	case len(found) > 0:
		return found, min(ttl4, ttl6), nil
	}
	if hosts, err := f.opt.Hosts(ctx, name); err == nil && len(hosts) > 0 {
		return hosts, f.cfg.Interval, nil
	}
	return nil, 0, fmt.Errorf("%s: %w", name, errors.Join(err4, err6))
}

// family asks for the addresses of one kind.
func (f *Finder) family(ctx context.Context, name string, kind uint16) ([]netip.Addr, time.Duration, error) {
	records, err := f.opt.Lookup(ctx, name, kind)
	if lost(err) {
		return slices.Clone(f.said[kind]), backend.MinSourceInterval, err
	}
	ttl := f.cfg.Interval
	var found []netip.Addr
	for _, r := range records {
		var ip net.IP
		switch r := r.(type) {
		case *dns.A:
			ip = r.A
		case *dns.AAAA:
			ip = r.AAAA
		}
		if a, ok := netip.AddrFromSlice(ip); ok {
			found = append(found, a.Unmap())
			ttl = min(ttl, seconds(r.Header().Ttl))
		}
	}
	f.said[kind] = slices.Clone(found)
	return found, ttl, err
}

// lost tells whether an error is more than an answer without records.
func lost(err error) bool {
	return err != nil && !errors.Is(err, errNoRecords) && !errors.Is(err, errNoName)
}

// Hosts answers what addresses a name has, by whatever else than DNS a system
// knows.
type Hosts func(ctx context.Context, name string) ([]netip.Addr, error)

func systemHosts(ctx context.Context, name string) ([]netip.Addr, error) {
	found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", name)
	for i := range found {
		found[i] = found[i].Unmap().WithZone("")
	}
	return found, err
}

// services are the backends that SRV records name: those of the lowest
// priority, with their weights (RFC 2782). Their names are resolved when they
// are connected to.
func (f *Finder) services(ctx context.Context, t backend.Target) ([]backend.Config, time.Duration, error) {
	records, err := f.opt.Lookup(ctx, t.Host, dns.TypeSRV)
	if err != nil {
		return nil, f.again(backend.MinSourceInterval), fmt.Errorf("%s: %w", t.Host, err)
	}
	ttl := f.cfg.Interval
	var first []*dns.SRV
	for _, r := range records {
		s, ok := r.(*dns.SRV)
		if !ok || s.Target == "." { // "not available at this domain"
			continue
		}
		ttl = min(ttl, seconds(s.Hdr.Ttl))
		if len(first) > 0 && s.Priority < first[0].Priority {
			first = first[:0]
		}
		if len(first) == 0 || s.Priority == first[0].Priority {
			first = append(first, s)
		}
	}
	var list []backend.Config
	for _, s := range first {
		host, port := strings.TrimSuffix(s.Target, "."), strconv.Itoa(int(s.Port))
		e := named(t.URL(host, port), net.JoinHostPort(host, port))
		e.Weight = weight(s, first)
		list = append(list, e)
	}
	return list, f.again(ttl), nil
}

// weight brings a record's weight, 0 to 65535, to one of ours, 1 to 1000.
// Weight 0 is next to nothing beside others, and a fair share among its like.
func weight(s *dns.SRV, all []*dns.SRV) int {
	most := slices.MaxFunc(all, func(a, b *dns.SRV) int { return int(a.Weight) - int(b.Weight) }).Weight
	if most <= 1000 {
		return max(1, int(s.Weight))
	}
	return max(1, int(s.Weight)*1000/int(most))
}

// again is when to look the next time.
func (f *Finder) again(ttl time.Duration) time.Duration {
	return min(max(ttl, backend.MinSourceInterval), f.cfg.Interval)
}

func seconds(n uint32) time.Duration { return time.Duration(n) * time.Second }

// named is a backend with every default.
func named(url, id string) backend.Config {
	e := backend.DefaultConfig()
	e.ID, e.URL = id, url
	return e
}

// systemDNS asks the servers of /etc/resolv.conf, in its order, each over UDP
// and over TCP what was cut. It reads the file for each question, so that a
// change of it counts.
func systemDNS() Lookup {
	return func(ctx context.Context, name string, kind uint16) ([]dns.RR, error) {
		conf, err := dns.ClientConfigFromFile("/etc/resolv.conf")
		if err != nil {
			return nil, fmt.Errorf("find the DNS servers: %w", err)
		}
		var servers []string
		for _, s := range conf.Servers {
			servers = append(servers, net.JoinHostPort(s, conf.Port))
		}
		return ask(ctx, servers, conf.NameList(name), kind)
	}
}

// ask puts one question, under each name in turn until one is known.
func ask(ctx context.Context, servers, names []string, kind uint16) ([]dns.RR, error) {
	err := errors.New("no DNS server is configured")
	for _, name := range names {
		var records []dns.RR
		if records, err = askOne(ctx, servers, name, kind); !errors.Is(err, errNoName) {
			return records, err
		}
	}
	return nil, err
}

func askOne(ctx context.Context, servers []string, name string, kind uint16) ([]dns.RR, error) {
	question := new(dns.Msg)
	question.SetQuestion(dns.Fqdn(name), kind)
	question.SetEdns0(1232, false)
	err := errors.New("no DNS server is configured")
	for _, server := range servers {
		var answer *dns.Msg
		client := dns.Client{Timeout: 2 * time.Second}
		answer, _, err = client.ExchangeContext(ctx, question, server)
		if err == nil && answer.Truncated {
			client.Net = "tcp"
			answer, _, err = client.ExchangeContext(ctx, question, server)
		}
		switch {
		case err != nil:
		case answer.Rcode == dns.RcodeNameError:
			return nil, errNoName
		case answer.Rcode != dns.RcodeSuccess:
			err = fmt.Errorf("%s answered %s", server, dns.RcodeToString[answer.Rcode])
		default:
			return of(answer.Answer, kind)
		}
	}
	return nil, err
}

// of are the records of one kind, those after aliases included.
func of(all []dns.RR, kind uint16) ([]dns.RR, error) {
	var list []dns.RR
	least := uint32(1 << 31)
	for _, r := range all {
		least = min(least, r.Header().Ttl) // an alias's TTL bounds what it leads to
		if r.Header().Rrtype == kind {
			list = append(list, r)
		}
	}
	if len(list) == 0 {
		return nil, errNoRecords
	}
	for _, r := range list {
		r.Header().Ttl = least
	}
	return list, nil
}
