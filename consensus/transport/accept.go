package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"
)

func (t *Transport) acceptLoop() {
	rest := 5 * time.Millisecond
	for {
		raw, err := t.listener.Accept()
		if err != nil {
			if t.isStopping() || errors.Is(err, net.ErrClosed) {
				return
			}
			t.log.Warn("a peer's connection cannot be accepted", "err", err) // descriptors, most likely; it may pass
			select {
			case <-time.After(rest):
				rest = min(2*rest, time.Second)
			case <-t.stopping:
			}
			continue
		}
		rest = 5 * time.Millisecond
		host := hostOf(raw)
		if !t.greetings.admit(host) || !t.start(func() { t.greet(raw, host) }) {
			_ = raw.Close() // over the limit: not even a reason, for who comes in such numbers is no peer
		}
	}
}

// greetings counts connections that have not said their hello, which costs
// nothing to open: whoever does nothing else must not keep the peers out.
type greetings struct {
	mu  sync.Mutex
	all int
	by  map[string]int // of them, by host; none is 0
}

func (g *greetings) admit(host string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.all >= maxGreetings || g.by[host] >= maxFromOne {
		return false
	}
	if g.by == nil {
		g.by = make(map[string]int)
	}
	g.all++
	g.by[host]++
	return true
}

func (g *greetings) leave(host string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.all--
	if g.by[host]--; g.by[host] == 0 {
		delete(g.by, host)
	}
}

func (g *greetings) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.all
}

func hostOf(c net.Conn) string {
	host, _, _ := net.SplitHostPort(c.RemoteAddr().String()) // a pipe has none: "" is a host, too
	return host
}

// greet hears the hello, answers, and hands the connection to whom it is for.
func (t *Transport) greet(raw net.Conn, host string) {
	c, h, err := t.hear(raw)
	t.greetings.leave(host)
	if err != nil {
		t.refusals.log(t.log, raw.RemoteAddr().String(), h.from, err)
		_ = raw.Close()
		return
	}
	switch h.kind {
	case kindGroup:
		t.group(h.group.Shard).hand(c)
	case kindCall:
		t.serveCalls(c, t.services[h.service])
	case kindFeed:
		t.serveFeed(c, t.services[h.service])
	}
}

// hear returns a connection that is accepted and counted.
func (t *Transport) hear(raw net.Conn) (*conn, hello, error) {
	ctx, cancel := context.WithTimeout(t.ctx, greetTime)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = raw.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	secure, err := t.keys.server(ctx, raw)
	if err != nil {
		return nil, hello{}, fmt.Errorf("TLS: %w", explain(err))
	}
	h, err := readHello(secure)
	switch {
	case errors.Is(err, errHello):
		if strings.Contains(err.Error(), `"\x16\x03`) {
			err = fmt.Errorf("%w: the caller speaks TLS, this node does not; write cluster.tls on both or none", err)
		}
		err = &RefusedError{RefusedHello, err.Error()}
	case err != nil:
		return nil, h, fmt.Errorf("hello: %w", err)
	default:
		t.await(ctx, h)
		err = t.judge(secure, h)
	}
	c := &conn{Conn: secure, t: t, node: h.from}
	if err == nil {
		err = t.count(c, h)
	}
	a := reply{version: versionMax}
	if r := (*RefusedError)(nil); errors.As(err, &r) {
		a.code, a.text = r.Code, r.Text
	}
	if _, sent := secure.Write(a.append(nil)); sent != nil && err == nil {
		err = fmt.Errorf("reply: %w", sent)
	}
	if err != nil {
		_ = c.Close()
		return nil, h, err
	}
	if !stop() { // the time was over in this instant, and the deadline is set
		_ = c.Close()
		return nil, h, context.Cause(ctx)
	}
	return c, h, nil
}

// await gives a replica that is about to open here a moment to do so: a leader
// that has a new member may be faster than that member.
func (t *Transport) await(ctx context.Context, h hello) {
	late := time.NewTimer(openTime)
	defer late.Stop()
	for h.kind == kindGroup && h.cluster == t.Cluster() && h.to == t.Node && t.greetings.count() < maxGreetings/2 {
		t.mu.Lock()
		open, opened := t.groups[h.group.Shard] != nil, t.opened
		t.mu.Unlock()
		if open {
			return
		}
		select {
		case <-opened:
		case <-late.C:
			return
		case <-t.stopping:
			return
		case <-ctx.Done():
			return
		}
	}
}

// judge compares the hello with what is here.
func (t *Transport) judge(c net.Conn, h hello) error {
	refuse := func(code Code, format string, args ...any) error {
		return &RefusedError{code, fmt.Sprintf(format, args...)}
	}
	own := t.Cluster()
	switch {
	case h.max < versionMin || h.min > versionMax:
		return refuse(RefusedVersion, "the caller speaks %d to %d, node %s speaks %d to %d", h.min, h.max, t.Node, versionMin, versionMax)
	case h.cluster != own && (h.cluster != "" && own != "" || !t.open(h)):
		return refuse(RefusedCluster, "the caller is of cluster %q, node %s of %q", h.cluster, t.Node, own)
	case h.to != t.Node:
		return refuse(RefusedNode, "the caller wants node %s, this is %s", h.to, t.Node)
	case t.isStopping():
		return refuse(RefusedStopping, "node %s is about to stop", t.Node)
	}
	if err := checkNames(c, h.from); err != nil {
		return refuse(RefusedCertificate, "%v", err)
	}
	known, _ := t.Resolver.Resolve(h.from) // "" where it is not known
	astray := h.at != "" && known != "" && h.at != known
	elsewhere := func() error {
		return refuse(RefusedPlace, "node %s says that it is at %s, and is known at %s; if it has not just moved, a data directory was copied: give each node its own", h.from, h.at, known)
	}
	switch s := t.services[h.service]; h.kind {
	case kindGroup:
		g := t.group(h.group.Shard)
		switch {
		case own == "":
			return refuse(RefusedCluster, "node %s has no cluster yet", t.Node)
		case g == nil:
			return refuse(RefusedGroup, "node %s has no replica of shard %d", t.Node, h.group.Shard)
		case g.ID != h.group:
			return refuse(RefusedIncarnation, "the caller means %v, node %s has %v", h.group, t.Node, g.ID)
		case astray: // two processes with one identity would be two voters with one vote
			return elsewhere()
		case h.service != special(g.name):
			return refuse(RefusedIncarnation, "the caller means replica %q of %v on node %s, which has %q", h.service, h.group, t.Node, special(g.name))
		}
		return nil
	case kindCall, kindFeed:
		if s == nil || (s.Answer == nil) != (h.kind == kindFeed) {
			return refuse(RefusedService, "node %s has no service %q of that kind", t.Node, h.service)
		}
		if s.Placed && astray {
			return elsewhere()
		}
		return nil
	}
	return refuse(RefusedHello, "kind %d is not known", h.kind)
}

// open tells whether nodes without a cluster may ask for it.
func (t *Transport) open(h hello) bool {
	s := t.services[h.service]
	return h.kind != kindGroup && s != nil && s.Open
}

// count puts the connection where it will be closed from.
func (t *Transport) count(c *conn, h hello) error {
	into := []*crowd{&t.accepted}
	if h.kind == kindGroup {
		if g := t.group(h.group.Shard); g != nil {
			into = append(into, &g.conns)
		}
	}
	for _, s := range into {
		if !s.add(c) {
			return &RefusedError{RefusedBusy, fmt.Sprintf("node %s takes no more connections of that kind now", t.Node)}
		}
		c.crowds = append(c.crowds, s)
	}
	return nil
}

// refusals keeps a peer that knocks ten times a second, for days, from filling the
// log: what goes on is told ever more seldom, down to once a minute.
type refusals struct {
	mu   sync.Mutex
	last map[string]told // by what was wrong; as many as there are codes
}

type told struct {
	at   time.Time
	rest time.Duration // until it is told again
}

// may tells whether to say it aloud.
func (r *refusals) may(what string, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last == nil {
		r.last = make(map[string]told)
	}
	last, since := r.last[what], now.Sub(r.last[what].at)
	if since <= last.rest {
		return false
	}
	rest := min(2*last.rest, refusalMost)
	if last.rest == 0 || since > 2*refusalMost { // it is new
		rest = refusalEvery
	}
	r.last[what] = told{now, rest}
	return true
}

func (r *refusals) log(log *slog.Logger, address, node string, err error) {
	what := "broken"
	if e := (*RefusedError)(nil); errors.As(err, &e) {
		what = e.Code.String()
	}
	level := slog.LevelDebug
	// Who says nothing only looked whether we are here; a stop cuts off whoever just came.
	if !errors.Is(err, io.EOF) && !errors.Is(err, context.Canceled) && r.may(what, time.Now()) {
		level = slog.LevelWarn
	}
	log.Log(context.Background(), level, "a peer's connection was refused", "address", address, "peer", node, "code", what, "err", err)
}
