package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/starling-lb/starling/node/api"
)

var upgradeFull = flag.Bool("upgrade.full", false, "TestUpgrades with ten upgrades and 400 streams, TestUpgradeOfACluster with every node twice")

// origin is a backend that counts what it carries.
type origin struct {
	*httptest.Server
	open atomic.Int64
	end  chan struct{} // closed when its event streams may end
}

func newOrigin(t *testing.T) *origin {
	o := &origin{end: make(chan struct{})}
	o.Server = httptest.NewServer(http.HandlerFunc(o.serve))
	t.Cleanup(o.Close)
	return o
}

func (o *origin) serve(w http.ResponseWriter, q *http.Request) {
	if q.URL.Path == "/echo" || q.URL.Path == "/" {
		_, _ = io.Copy(w, q.Body)
		return
	}
	o.open.Add(1)
	defer o.open.Add(-1)
	(&day{over: o.end}).serve(w, q)
}

// rig is a node in front of two origins, and what goes on there.
type rig struct {
	*process
	text    string // of its configuration, where it is kept
	origins [2]*origin
	end     func() // of the event streams
	streams sync.WaitGroup
}

func newRig(t *testing.T) *rig {
	r := &rig{process: newProcess(t), origins: [2]*origin{newOrigin(t), newOrigin(t)}}
	r.end = sync.OnceFunc(func() { close(r.origins[0].end); close(r.origins[1].end) })
	t.Cleanup(r.end)
	return r
}

// pools is the part of a configuration that is the same for all.
//
// Where sessions are strict, a turn which finds nobody to ask fails.
func (r *rig) pools(consistency string) string {
	return fmt.Sprintf(`log: {level: info}
pools:
  p:
    backends: [{id: b1, url: %q}, {id: b2, url: %q}]
    sticky: {key: ["header:X-Session-ID"], consistency: %s, bind_timeout: 2s}
    health: {enabled: false}
    backend: {engine: none}
    rebalance: {enabled: false}
`, r.origins[0].URL, r.origins[1].URL, consistency)
}

// events carries an event stream, and the next turn of its session; both must end
// whole. An empty session is none.
func (r *rig) events(session string) { r.carry(session, "keep-alive") }

// last carries an event stream, with which its client ends.
func (r *rig) last(session string) { r.carry(session, "close") }

func (r *rig) carry(session, connection string) {
	begun := make(chan struct{})
	r.streams.Go(func() {
		err := stream(r.proxy, session, connection, func() { close(begun) })
		if err != nil {
			r.t.Errorf("a stream of session %q: %v", session, err)
		}
	})
	select {
	case <-begun:
	case <-time.After(dayLimit):
		r.t.Fatal("a stream does not begin")
	}
}

// socket carries a WebSocket, which asks and is answered until streams may end.
func (r *rig) socket() {
	begun := make(chan struct{})
	r.streams.Go(func() {
		if err := (&day{t: r.t, proxy: r.proxy, over: r.origins[0].end}).socket(func() { close(begun) }); err != nil {
			r.t.Errorf("a WebSocket: %v", err)
		}
	})
	select {
	case <-begun:
	case <-time.After(dayLimit):
		r.t.Fatal("a WebSocket does not begin")
	}
}

// stream is one, and at once the session's next turn on the same connection, unless one
// of both has said that it closes it.
func stream(proxy, session, connection string, begun func()) error {
	begin := sync.OnceFunc(begun)
	defer begin()
	c, err := net.Dial("tcp", proxy)
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(dayLimit))
	fmt.Fprintf(c, "GET /events HTTP/1.1\r\nHost: h\r\nX-Session-ID: %s\r\nConnection: %s\r\n\r\n", session, connection)
	in := bufio.NewReader(c)
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		return err
	}
	begin()
	text, err := io.ReadAll(resp.Body)
	if err == nil && !strings.HasSuffix(string(text), "data: [DONE]\n\n") {
		err = fmt.Errorf("%s, ended after %q", resp.Status, tail(string(text)))
	}
	if err != nil || resp.Close {
		return err
	}
	fmt.Fprintf(c, "POST /echo HTTP/1.1\r\nHost: h\r\nX-Session-ID: %s\r\nContent-Length: 4\r\n\r\nnext", session)
	if resp, err = http.ReadResponse(in, nil); err != nil {
		return fmt.Errorf("the next turn: %w", err)
	}
	if text, err = io.ReadAll(resp.Body); err == nil && string(text) != "next" {
		err = fmt.Errorf("the next turn: %s with %q", resp.Status, text)
	}
	return err
}

// pace is how often each client of a load asks: the nodes shall not want for CPU.
const pace = 10 * time.Millisecond

// load sends requests, on a connection each and on one while it lasts, until it is
// told to end; none may fail. It returns how many there were.
func (r *rig) load(t *testing.T) (stop func() int64) {
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	var done atomic.Int64
	for i := range 6 {
		all.Go(func() {
			client := &http.Client{Transport: &http.Transport{DisableKeepAlives: i%3 > 0}, Timeout: time.Minute}
			defer client.CloseIdleConnections()
			tick := time.NewTicker(pace)
			defer tick.Stop()
			for n := 0; ctx.Err() == nil; n++ {
				<-tick.C
				if err := r.post(client, i, n); err != nil {
					t.Errorf("request %d of client %d: %v", n, i, err)
					return
				}
				done.Add(1)
			}
		})
	}
	return func() int64 {
		cancel()
		all.Wait()
		return done.Load()
	}
}

// post sends a request that nobody may repeat.
func (r *rig) post(client *http.Client, i, n int) error {
	body := fmt.Sprintf("%d of %d", n, i)
	q, err := http.NewRequest("POST", "http://"+r.proxy+"/echo", io.NopCloser(strings.NewReader(body))) // without GetBody
	if err != nil {
		return err
	}
	q.ContentLength = int64(len(body))
	if i%2 == 0 {
		q.Header.Set("X-Session-ID", fmt.Sprintf("of-client-%d-%d", i, n%16))
	}
	resp, err := client.Do(q)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && (resp.StatusCode != 200 || string(text) != body) {
		err = fmt.Errorf("%s with %q", resp.Status, text)
	}
	return err
}

// exact is what is wrong with the counts: the node's, over all its processes, must be
// the origins' own.
func (r *rig) exact(want int64) string {
	var list api.Backends
	if err := r.get("/v1/backends", &list); err != nil {
		return err.Error()
	}
	s, err := r.status()
	if err != nil || s.Streams.InFlight != want {
		return fmt.Sprintf("%d streams in flight, want %d; elders %v, %v", s.Streams.InFlight, want, s.Elders, err)
	}
	for i, o := range r.origins {
		b := list.Backends[i]
		series := fmt.Sprintf(`starling_streams_in_flight{backend="b%d",pool="p"}`, i+1)
		if got, err := r.gauge(series); err != nil || b.InFlight.Local != o.open.Load() || b.InFlight.Cluster != o.open.Load() || int64(got) != o.open.Load() {
			return fmt.Sprintf("backend %s carries %d; the node says %+v and, in %s, %v, %v", b.ID, o.open.Load(), b.InFlight, series, got, err)
		}
	}
	var streams api.StreamList
	if err := r.get("/v1/streams?limit=1000", &streams); err != nil || int64(len(streams.Streams)) != want {
		return fmt.Sprintf("%d streams are listed, want %d, %v", len(streams.Streams), want, err)
	}
	return ""
}

// TestUpgrades: a node is upgraded again and again while clients connect, ask and
// stream. No connection is refused, no request fails, no stream is cut, and the counts
// are those of all its processes; older ones end with their last stream.
func TestUpgrades(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.configure("node: {name: n1, data_dir: %s/data, drain_timeout: 5m}\nadmin: {address: 127.0.0.1:0}\nlisteners:\n  - {address: 127.0.0.1:0}\n%s", r.dir, r.pools("strict"))
	r.start()
	upgrades, each := 3, 12
	if *upgradeFull {
		upgrades, each = 10, 40
	}
	id := ""
	if s, err := r.status(); err == nil {
		id = s.Node.ID
	}
	stop := r.load(t)
	for i := range upgrades {
		for k := range each {
			session := ""
			if k%2 == 0 {
				session = fmt.Sprintf("s-%d-%d", i, k)
			}
			r.events(session)
		}
		for range each / 4 {
			r.socket()
		}
		r.upgraded(func() {
			if i == 1 {
				r.signal(syscall.SIGUSR2)
				return
			}
			code, said := r.command("upgrade")
			if code != 0 || !strings.Contains(said, "is the node, after") {
				t.Errorf("upgrade %d: exit %d, %s", i, code, said)
			}
			t.Logf("upgrade %d: %s", i, said)
		})
	}
	asked := stop()
	total := int64(upgrades * (each + each/4))
	within(t, dayLimit, func() string { return r.exact(total) })
	s, err := r.status()
	if err != nil || s.Node.ID != id || len(s.Elders) != upgrades {
		t.Errorf("the node is %v with elders %v, %v; it was %s", s.Node, s.Elders, err, id)
	}
	if code, said := r.command("status"); code != 0 || strings.Count(said, "elder ") != upgrades || !strings.Contains(said, fmt.Sprintf("carries %d of them since", each+each/4)) {
		t.Errorf("exit %d, %s", code, said)
	}
	r.end()
	r.streams.Wait()
	within(t, dayLimit, r.alone)
	within(t, dayLimit, func() string { return r.exact(0) })
	ended, err := r.gauge(`starling_streams_total{backend="b1",pool="p",reason="done"}`)
	more, err2 := r.gauge(`starling_streams_total{backend="b2",pool="p",reason="done"}`)
	if err := errors.Join(err, err2); err != nil || int64(ended+more) < total {
		t.Errorf("%v streams have ended by the metrics, of %d that the older processes carried; %v", ended+more, total, err)
	}
	if asked < 20 {
		t.Errorf("only %d requests went by", asked)
	}
	if code := <-r.ended; code != 0 {
		t.Errorf("the first process ended with %d", code)
	}
	r.signal(syscall.SIGTERM)
	within(t, dayLimit, func() string {
		if n := strings.Count(r.log(), "msg=drained"); n != upgrades+1 || strings.Count(r.log(), "cut=0") != n {
			return fmt.Sprintf("%d processes have ended well", n)
		}
		return ""
	})
	t.Logf("%d requests", asked)
}

// TestAMoveWaitsForAnElder: a session whose turn runs in the process before is not
// moved beneath it.
func TestAMoveWaitsForAnElder(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.configure("node: {name: n1, data_dir: %s/data, drain_timeout: 0s}\nadmin: {address: 127.0.0.1:0}\nlisteners:\n  - {address: 127.0.0.1:0}\n%s", r.dir, r.pools("strict"))
	r.start()
	r.events("s")
	r.upgraded(func() { r.command("upgrade") })
	r.staysPut("s")
	r.upgraded(func() { r.command("upgrade") }) // two of them between the turn and who leads
	from := r.home("s")
	if from == "" {
		t.Fatal("the session is lost")
	}
	r.end()
	r.streams.Wait()
	to := map[string]string{"b1": "b2", "b2": "b1"}[from]
	within(t, dayLimit, func() string {
		r.command("move", "s", to, "--pool", "p")
		if at := r.home("s"); at != to {
			return "it is at " + at
		}
		return ""
	})
}

func (r *rig) home(session string) string {
	var s api.Session
	if err := r.get("/v1/sessions/p/"+session, &s); err != nil {
		return ""
	}
	return s.Backend
}

// staysPut has a session moved whose turn runs, which must not happen.
func (r *rig) staysPut(session string) {
	r.t.Helper()
	from := r.home(session)
	to := map[string]string{"b1": "b2", "b2": "b1"}[from]
	code, said := r.command("move", session, to, "--pool", "p")
	if at := r.home(session); code == 0 || at != from || from == "" {
		r.t.Errorf("session %s was at %q and is at %q, beneath its turn: exit %d, %s", session, from, at, code, said)
	}
}

// TestAFailedUpgrade: whatever is wrong with the new process, the node goes on as
// before, and says what it was. Then it can be upgraded all the same.
func TestAFailedUpgrade(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	good := fmt.Sprintf("node: {name: n1, data_dir: %s/data, drain_timeout: 5m}\nreload: {watch: false}\nadmin: {address: 127.0.0.1:0}\nlisteners:\n  - {address: 127.0.0.1:0}\n%%s%s", r.dir, r.pools("strict"))
	r.configure(good, "")
	r.start()
	r.events("s")
	stop := r.load(t)
	fails := func(why string) {
		t.Helper()
		if code, said := r.command("upgrade"); code == 0 || !strings.Contains(said, why) {
			t.Errorf("exit %d, %s; want %q", code, said, why)
		}
	}
	r.configure(good, "nonsense: 1\n")
	fails("nonsense")
	if err := os.Remove(r.program); err != nil {
		t.Fatal(err)
	}
	fails("no such file")
	if err := os.WriteFile(r.program, []byte("#!/bin/sh\nexit 7\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	fails("exit status 7")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Remove(r.program), os.Symlink(self, r.program)); err != nil {
		t.Fatal(err)
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	r.configure(good, fmt.Sprintf("  - {address: %q}\n", taken.Addr())) // found out once the directory was handed over
	fails("address already in use")
	r.tells("upgrade   n1: the upgrade failed", "exit status 7", "address already in use")
	r.configure(good, "")
	within(t, dayLimit, func() string { return r.serves("s") })
	r.staysPut("s")
	r.upgraded(func() { r.command("upgrade") })
	r.tells("took over; process", "streams to their end")
	r.staysPut("s")
	if n := stop(); n == 0 {
		t.Error("nobody asked meanwhile")
	}
	r.end()
	r.streams.Wait()
	within(t, dayLimit, r.alone)
	within(t, dayLimit, func() string {
		if n, err := r.gauge(`starling_events_total{kind="upgrade"}`); err != nil || n < 2 {
			return fmt.Sprintf("%v events of the upgrade, %v", n, err)
		}
		return ""
	})
	r.tells("which carried the streams from before the upgrade, has ended")
}

// tells says whether the node's events have the words.
func (r *rig) tells(words ...string) {
	r.t.Helper()
	code, said := r.command("events", "--once", "--recent", "1000")
	for _, w := range words {
		if code != 0 || !strings.Contains(said, w) {
			r.t.Errorf("exit %d, and the events do not say %q:\n%s", code, w, said)
		}
	}
}

// serves is what is wrong with a turn of a session.
func (r *rig) serves(session string) string {
	q, err := http.NewRequest("GET", "http://"+r.proxy+"/", nil)
	if err != nil {
		return err.Error()
	}
	q.Header.Set("X-Session-ID", session)
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}).Do(q)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return resp.Status
	}
	return ""
}

// TestTheHeirDies: whoever is the node may die; the one before carries its streams on,
// and the next process that is started finds it. A signal that is meant for the node
// does not end it, a second one does.
func TestTheHeirDies(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.configure("node: {name: n1, data_dir: %s/data, drain_timeout: 5m}\nadmin: {address: 127.0.0.1:0}\nlisteners:\n  - {address: 127.0.0.1:0}\n%s", r.dir, r.pools("strict"))
	r.start()
	elder, ended := r.pid, r.ended
	r.events("s")
	home := r.home("s")
	r.upgraded(func() { r.command("upgrade") })
	heir := r.pid
	r.signal(syscall.SIGKILL)
	r.ended = make(chan int, 1)
	within(t, dayLimit, func() string {
		if _, err := r.status(); err == nil {
			return "it answers still"
		}
		return ""
	})
	r.start()
	if r.pid == heir || r.pid == elder {
		t.Fatal("no new process")
	}
	within(t, dayLimit, func() string { return r.exact(1) })
	if at := r.home("s"); at != home {
		t.Errorf("the session was at %s, and is at %s", home, at)
	}
	r.staysPut("s")
	if err := syscall.Kill(elder, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	within(t, dayLimit, func() string {
		if !strings.Contains(r.log(), "this one ends with its last stream, or at once at the next signal") {
			return "the signal is not heard"
		}
		return r.exact(1)
	})
	r.end()
	r.streams.Wait()
	if code := <-ended; code != 0 {
		t.Errorf("the elder ended with %d", code)
	}
	within(t, dayLimit, r.alone)
}

// TestTheElderDies: nothing is counted or waited for of an older process that has died.
func TestTheElderDies(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.configure("node: {name: n1, data_dir: %s/data, drain_timeout: 5m}\nadmin: {address: 127.0.0.1:0}\nlisteners:\n  - {address: 127.0.0.1:0}\n%s", r.dir, r.pools("strict"))
	r.start()
	begun, broken := make(chan struct{}), make(chan error, 1)
	go func() { broken <- stream(r.proxy, "s", "close", func() { close(begun) }) }()
	<-begun
	elder, from := r.pid, r.home("s")
	r.upgraded(func() { r.command("upgrade") })
	within(t, dayLimit, func() string { return r.exact(1) })
	if err := syscall.Kill(elder, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := <-broken; err == nil {
		t.Error("a stream of a process that was killed ended whole")
	}
	within(t, dayLimit, r.alone)
	within(t, dayLimit, func() string { return r.exact(0) })
	to := map[string]string{"b1": "b2", "b2": "b1"}[from]
	within(t, dayLimit, func() string {
		r.command("move", "s", to, "--pool", "p")
		if at := r.home("s"); at != to {
			return "the session is at " + at
		}
		return ""
	})
}

// TestSocketActivation: a node listens at the sockets that systemd hands in, tells it
// how it is, and names the new process when it is upgraded.
func TestSocketActivation(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	file, err := l.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	at := l.Addr().String()
	_ = l.Close() // the file keeps it open: nobody else can have the address
	told, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: r.dir + "/notify", Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = told.Close() })
	r.environ = []string{"NOTIFY_SOCKET=" + r.dir + "/notify", "LISTEN_FDS=1"}
	r.wrap = []string{"/bin/sh", "-c", `LISTEN_PID=$$ exec "$0" "$@"`}
	r.files = []*os.File{file}
	r.configure("node: {name: n1, data_dir: %s/data, drain_timeout: 5m}\nadmin: {address: 127.0.0.1:0}\nlisteners:\n  - {address: %q}\n%s", r.dir, at, r.pools("strict"))
	r.start()
	heard := func(what string) {
		t.Helper()
		_ = told.SetReadDeadline(time.Now().Add(dayLimit))
		for b := make([]byte, 4096); ; {
			n, err := told.Read(b)
			if err != nil {
				t.Fatalf("%q was not told: %v", what, err)
			}
			if strings.Contains(string(b[:n]), what) {
				return
			}
		}
	}
	heard("READY=1")
	if r.proxy != at {
		t.Errorf("it listens at %s, want %s", r.proxy, at)
	}
	if wrong := r.serves("s"); wrong != "" {
		t.Error(wrong)
	}
	r.signal(syscall.SIGHUP)
	heard("RELOADING=1\nMONOTONIC_USEC=")
	heard("READY=1")
	good, err := os.ReadFile(r.config)
	if err != nil {
		t.Fatal(err)
	}
	r.configure("%snonsense: 1\n", good)
	r.signal(syscall.SIGHUP)
	heard("STATUS=the configuration in force stays: ")
	r.configure("%s", good)
	r.signal(syscall.SIGHUP)
	heard("STATUS=configuration ")
	r.events("s")
	r.upgraded(func() { r.signal(syscall.SIGUSR2) })
	heard(fmt.Sprintf("MAINPID=%d", r.pid))
	if code, said := r.command("events", "--once", "--recent", "200"); code != 0 || !strings.Contains(said, "nonsense: is no known key") {
		t.Errorf("what happened before the upgrade is forgotten: %d, %s", code, said)
	}
	if wrong := r.serves("s"); wrong != "" {
		t.Error(wrong)
	}
	r.signal(syscall.SIGTERM)
	heard("STOPPING=1")
	within(t, dayLimit, func() string {
		if !strings.Contains(r.log(), "this one ends after them") {
			return "the node does not wait for its elder, with which a supervisor would end the stream"
		}
		return ""
	})
	r.end()
	r.streams.Wait()
	var status syscall.WaitStatus
	if got, err := syscall.Wait4(r.pid, &status, 0, nil); err != nil || got != r.pid || status.ExitStatus() != 0 {
		t.Errorf("who started the first process cannot wait for the second, or it did not end well: %v, exit %d", err, status.ExitStatus()) // and systemd kills whom it cannot wait for
	}
}

// TestUpgradeOfACluster: a node of a cluster is upgraded, and is the same node to the
// others: it does not leave for them, no replica moves, no session is lost, and no request
// fails at any node.
func TestUpgradeOfACluster(t *testing.T) {
	t.Parallel()
	ports := freePorts(t, 6)
	var nodes []*rig
	first := newRig(t)
	for i := range 3 {
		r := &rig{process: newProcess(t), origins: first.origins, end: first.end}
		r.text = fmt.Sprintf(`node: {name: n%d, data_dir: %s/data, drain_timeout: 5m}
reload: {watch: false}
admin: {address: 127.0.0.1:0}
cluster: {bind: 127.0.0.1:%d, rpc: 127.0.0.1:%d, seeds: ["127.0.0.1:%d", "127.0.0.1:%d"], bootstrap_expect: 3}
shards: {count: 4, replicas: 3}
%slisteners:
  - {address: 127.0.0.1:0}
`, i+1, r.dir, ports[2*i], ports[2*i+1], ports[0], ports[2], r.pools("available"))
		r.configure("%s", r.text)
		nodes = append(nodes, r)
	}
	for _, r := range nodes {
		r.start()
	}
	for _, r := range nodes {
		within(t, dayLimit, func() string { return r.settled(3) })
	}
	rounds := 1
	if *upgradeFull {
		rounds = 6
	}
	before := nodes[0].replicas()
	var stops []func() int64
	for _, r := range nodes {
		stops = append(stops, r.load(t))
	}
	for i := range rounds {
		r := nodes[i%3]
		was, err := r.status()
		if err != nil {
			t.Fatal(err)
		}
		r.events(fmt.Sprintf("mine-%d", i))
		home := r.home(fmt.Sprintf("mine-%d", i))
		if i == 0 {
			r.failsOnce()
		}
		r.upgraded(func() {
			code, said := r.command("upgrade")
			if t.Logf("upgrade of n%d: %s", i%3+1, said); code != 0 {
				t.Errorf("exit %d", code)
			}
		})
		within(t, dayLimit, func() string { return r.settled(3) })
		if is, err := r.status(); err != nil || is.Node.ID != was.Node.ID || is.Cluster.ID != was.Cluster.ID {
			t.Errorf("it is %v, and was %v; %v", is.Node, was.Node, err)
		}
		nodes[(i+1)%3].staysPut(fmt.Sprintf("mine-%d", i))
		if at := nodes[(i+2)%3].home(fmt.Sprintf("mine-%d", i)); at != home {
			t.Errorf("session mine-%d was at %s, and is at %s", i, home, at)
		}
	}
	for i, stop := range stops {
		if stop() == 0 {
			t.Errorf("nobody asked n%d", i+1)
		}
	}
	if after := nodes[0].replicas(); after != before {
		t.Errorf("replicas were\n%s\nand are\n%s", before, after)
	}
	for _, r := range nodes {
		if strings.Contains(r.log(), "state=left") {
			t.Errorf("a node was seen to leave by that of %s", r.dir)
		}
	}
	first.end()
	for _, r := range nodes {
		r.streams.Wait()
		within(t, dayLimit, r.alone)
		within(t, dayLimit, func() string { return r.quiet() })
	}
}

// failsOnce is an upgrade that fails when all was handed over.
func (r *rig) failsOnce() {
	r.t.Helper()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		r.t.Fatal(err)
	}
	defer taken.Close()
	r.configure("%s  - {address: %q}\n", r.text, taken.Addr())
	if code, said := r.command("upgrade"); code == 0 || !strings.Contains(said, "address already in use") {
		r.t.Errorf("exit %d, %s", code, said)
	}
	r.configure("%s", r.text)
	within(r.t, dayLimit, func() string { return r.settled(3) })
}

// freePorts are ports that nobody had a moment ago.
func freePorts(t *testing.T, n int) (ports []int) {
	t.Helper()
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports
}

// settled is what is missing until every shard has a leader and all nodes are alive.
func (p *process) settled(nodes int) string {
	s, err := p.status()
	if err != nil || s.Cluster.Alive != nodes || s.Shards.Count == 0 || s.Shards.WithoutLeader > 0 || s.Shards.Steps > 0 || s.NotReady != "" {
		return fmt.Sprintf("%+v %+v %s, %v", s.Cluster, s.Shards, s.NotReady, err)
	}
	return ""
}

// replicas says where they are.
func (p *process) replicas() string {
	var list api.ShardList
	if err := p.get("/v1/shards", &list); err != nil {
		p.t.Fatal(err)
	}
	var out []string
	for _, s := range list.Shards {
		var nodes []string
		for _, r := range s.Replicas {
			nodes = append(nodes, r.Node)
		}
		slices.Sort(nodes)
		out = append(out, fmt.Sprint(s.ID, s.Incarnation, nodes))
	}
	return strings.Join(out, "\n")
}

// quiet is what a node still counts.
func (r *rig) quiet() string {
	var list api.Backends
	if err := r.get("/v1/backends", &list); err != nil {
		return err.Error()
	}
	for _, b := range list.Backends {
		if b.InFlight.Cluster != 0 {
			return fmt.Sprintf("%s: %+v", b.ID, b.InFlight)
		}
	}
	return ""
}
