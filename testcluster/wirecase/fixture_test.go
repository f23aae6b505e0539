package wirecase

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// What the experiments share: they run on every loop, each with a proxy and
// raw backends of its own.

// patience is for what must come and is not timed: on a machine that does much else
// it takes its time.
const patience = 30 * time.Second

// running is a started proxy.
type running struct{ addr, admin string }

// loop is one way to carry bytes.
type loop struct {
	name  string
	start func(t *testing.T, config string) running // stopped with the test
}

// setup is a configuration in pieces of YAML's flow form.
type setup struct {
	backends []string // host:port
	pool     string   // ", key: value" of the pool
	listener string   // ", key: value" of the listener
	top      string   // lines of sections
}

func (s setup) yaml(dir string) string {
	var urls []string
	for _, b := range s.backends {
		urls = append(urls, strconv.Quote("http://"+b))
	}
	// No ejection: an experiment breaks its only backend again and again. No
	// questions of starling's own: it counts connections.
	return fmt.Sprintf("node: {data_dir: %q}\nadmin: {address: \"127.0.0.1:0\"}\n"+
		"listeners: [{address: \"127.0.0.1:0\"%s}]\n"+
		"pools: {p: {backends: [%s], outlier: {consecutive_failures: 0}, health: {enabled: false}, backend: {engine: none}%s}}\n%s",
		dir, s.listener, strings.Join(urls, ", "), s.pool, s.top)
}

// rig is a proxy under experiment.
type rig struct {
	running
	t   *testing.T
	ctx context.Context
}

// onEachLoop runs the experiment on every loop, beside all others.
func onEachLoop(t *testing.T, experiment func(t *testing.T, l loop)) {
	t.Parallel()
	for _, l := range loops() {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			experiment(t, l)
		})
	}
}

func newRig(t *testing.T, l loop, s setup) *rig {
	t.Helper()
	return &rig{running: l.start(t, s.yaml(t.TempDir())), t: t, ctx: deadline(t)}
}

// dial connects a client for the length of the test.
func (r *rig) dial(methods ...string) *Client {
	r.t.Helper()
	c, err := Dial(r.ctx, r.addr, methods...)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(c.Close)
	return c
}

// ask sends one request on a connection of its own and waits for its end.
func (r *rig) ask(request string) Message {
	r.t.Helper()
	method, _, _ := strings.Cut(request, " ")
	c := r.dial(method)
	defer c.Close()
	return r.next(c, request, 1)
}

// next sends a request and waits for the nth complete response.
func (r *rig) next(c *Client, request string, n int) Message {
	r.t.Helper()
	if err := c.Send(request); err != nil {
		r.t.Fatalf("send %s: %v", quoted([]byte(request)), err)
	}
	r.await(c, n)
	return c.Seen().Finals[n-1]
}

// await fails the test unless n complete responses come and nothing malformed.
func (r *rig) await(c *Client, n int) {
	r.t.Helper()
	ok := c.Await(r.ctx, n, patience)
	s := c.Seen()
	if found := malformed(s); !ok || len(found) > 0 {
		r.t.Fatalf("%d complete responses, want %d; malformed: %v; got %s (%s)", s.Complete(), n, found, quoted(s.Raw), ended(s))
	}
}

// untilEnd waits until the proxy has closed the client's connection.
func (r *rig) untilEnd(c *Client) Seen {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.ctx, patience)
	defer cancel()
	if !c.Until(ctx, func(s Seen) bool { return s.Ended != "" }) {
		r.t.Fatalf("the connection is still open after %s", quoted(c.Seen().Raw))
	}
	return c.Seen()
}

// eventually waits for a state of affairs that nobody announces.
func (r *rig) eventually(fault func() string) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.ctx, patience)
	defer cancel()
	for {
		last := fault()
		if last == "" {
			return
		}
		if !pause(ctx, 10*time.Millisecond) {
			r.t.Fatalf("after %v: %s", patience, last)
		}
	}
}

// wantReason waits until so many streams have ended for the reason, and none
// for any other but those of the rest.
func (r *rig) wantReason(reason string, n int, rest ...string) {
	r.t.Helper()
	r.eventually(func() string {
		by := r.metric("starling_streams_total", "reason")
		for other, count := range by {
			if other != reason && count > 0 && !slices.Contains(rest, other) {
				return fmt.Sprintf("streams_total is %v, want only %s", by, reason)
			}
		}
		if by[reason] != float64(n) {
			return fmt.Sprintf("streams_total is %v, want %d %s", by, n, reason)
		}
		return ""
	})
}

// metric sums the samples of a family by one label; "" sums them all.
func (r *rig) metric(family, label string) map[string]float64 {
	r.t.Helper()
	tr := &http.Transport{DisableKeepAlives: true}
	res, err := (&http.Client{Transport: tr, Timeout: patience}).Get("http://" + r.admin + "/metrics")
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }() // read to its end below
	sums := map[string]float64{}
	for lines := bufio.NewScanner(res.Body); lines.Scan(); {
		name, rest, ok := strings.Cut(lines.Text(), "{")
		labels, value, ok2 := strings.Cut(rest, "} ")
		if name != family || !ok || !ok2 {
			continue
		}
		_, after, _ := strings.Cut(","+labels, ","+label+`="`)
		key, _, _ := strings.Cut(after, `"`)
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			r.t.Fatalf("metric line %q: %v", lines.Text(), err)
		}
		sums[key] += n
	}
	return sums
}

// tries are how often something is begun anew that a machine that does much else may
// have delayed: what a proxy holds back it holds back each time.
const tries = 10

// timed runs what depends on a machine's timing until it is in time once.
func timed(t *testing.T, try func() error) {
	t.Helper()
	var err error
	for range tries {
		if err = try(); err == nil {
			return
		}
	}
	t.Errorf("%d times: %v", tries, err)
}

// diary is what a backend of an experiment got.
type diary struct {
	mu  sync.Mutex // guards all
	all []Message
}

func (d *diary) note(m *Message) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.all = append(d.all, *m)
}

func (d *diary) read() []Message {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.all)
}

func heads(all []Message) []string {
	var raws []string
	for _, m := range all {
		raws = append(raws, string(m.Raw))
	}
	return raws
}

// clean fails the test for any request that is not clean or was smuggled.
func (d *diary) clean(t *testing.T) {
	t.Helper()
	for _, m := range d.read() {
		if len(m.Defects) > 0 || strings.Contains(m.Target, "smuggled") {
			t.Errorf("a backend got %q: %v", m.Raw, m.Defects)
		}
	}
}

// answering serves complete requests; answer tells whether the connection can
// take another one.
func answering(t *testing.T, answer func(c *Conn, m *Message) bool) (*Backend, *diary) {
	d := &diary{}
	return started(t, func(c *Conn) {
		for {
			m, err := c.Next()
			if err != nil {
				if len(m.Raw) > 0 {
					d.note(m)
				}
				return
			}
			d.note(m)
			if !answer(c, m) {
				return
			}
		}
	}), d
}

// ok answers 200.
func ok(c *Conn, body string) bool {
	return c.Send(fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body), body)) == nil
}

// refused is an address where nobody listens, nor comes to while the test runs: a
// connection begins there.
func refused(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	c, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}}).Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c.LocalAddr().String()
}

// get is a plain request with more header lines.
func get(target string, lines ...string) string { return request("GET", target, "", lines...) }

func request(method, target, body string, lines ...string) string {
	head := method + " " + target + " HTTP/1.1\r\nHost: t.test\r\n"
	for _, l := range lines {
		head += l + "\r\n"
	}
	return head + "\r\n" + body
}
