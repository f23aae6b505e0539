//go:build unix

package testcluster_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/starling-lb/starling/node"
	"github.com/starling-lb/starling/node/api"
	"github.com/starling-lb/starling/node/client"
)

// childConfig names the file of the node that a process of this test's own is.
const childConfig = "TESTCLUSTER_NODE_CONFIG"

// TestNodeOfItsOwn is what such a process runs; in the test's own process there is
// nothing for it to do.
func TestNodeOfItsOwn(t *testing.T) {
	path := os.Getenv(childConfig)
	if path == "" {
		return
	}
	config, err := node.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	n, err := node.New(config, node.Options{})
	if err == nil {
		err = n.Start(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("ready %s %s\n", n.ProxyAddrs()[0], n.AdminAddr())
	_, _ = io.Copy(io.Discard, os.Stdin) // until the parent is gone
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = n.Stop(ctx) // a hard end is one, too
}

// process is a node in a process of its own.
type process struct {
	*exec.Cmd
	url   string
	admin *client.Client
}

// processes starts as many nodes as one cluster, whose pool "llm" has the backends.
// An address that was free may be taken by now: then all begin anew.
func processes(t *testing.T, count int, backends []string) []*process {
	for range 5 {
		if all := tryProcesses(t, count, backends); len(all) == count {
			return all
		}
	}
	t.Fatal("the nodes did not start")
	return nil
}

func tryProcesses(t *testing.T, count int, backends []string) (all []*process) {
	dir, seeds := t.TempDir(), make([]string, count)
	for i := range seeds {
		seeds[i] = freeAddr(t)
	}
	for i := range count {
		path := filepath.Join(dir, fmt.Sprintf("n%d.yaml", i))
		text := fmt.Sprintf(`
node: {name: n%d, data_dir: %q}
cluster: {bind: %q, rpc: %q, seeds: ["%s"], bootstrap_expect: %d}
shards: {count: 4}
admin: {address: "127.0.0.1:0"}
listeners: [{address: "127.0.0.1:0"}]
pools:
  llm:
    backends: [%s]
    sticky: {consistency: strict, bind_timeout: 2s}
    health: {enabled: false}
`, i, filepath.Join(dir, fmt.Sprint("n", i)), seeds[i], freeAddr(t), strings.Join(seeds, `", "`), count, strings.Join(backends, ", "))
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		p := newProcess(t, path)
		if p == nil {
			for _, other := range all {
				_ = other.Process.Kill()
			}
			return nil
		}
		all = append(all, p)
	}
	return all
}

func freeAddr(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// newProcess returns nil if the node cannot start.
func newProcess(t *testing.T, config string) *process {
	p := &process{Cmd: exec.Command(os.Args[0], "-test.run=^TestNodeOfItsOwn$")}
	p.Env = append(os.Environ(), childConfig+"="+config)
	in, err := p.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		_ = p.Process.Kill() // stopped or not
		_ = p.Wait()
	})
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if word, rest, _ := strings.Cut(lines.Text(), " "); word == "ready" {
			proxy, admin, _ := strings.Cut(rest, " ")
			p.url = "http://" + proxy
			if p.admin, err = client.New("http://"+admin, ""); err != nil {
				t.Fatal(err)
			}
			return p
		}
	}
	t.Log("a node of its own has ended before it was ready")
	return nil
}

func (p *process) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := p.Process.Signal(s); err != nil {
		t.Error(err)
	}
}

// ledger is what the backends saw: the streams of each session.
type ledger struct {
	mu      sync.Mutex
	streams map[string][]*span
	total   int
}

type span struct {
	backend    string
	began, end time.Time // end is zero as long as it runs
}

// serve is a backend that streams for as long as the request says.
func (l *ledger) serve(id string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s := &span{backend: id, began: time.Now()}
		session := r.Header.Get("X-Session-ID")
		l.mu.Lock()
		l.streams[session] = append(l.streams[session], s)
		l.total++
		l.mu.Unlock()
		defer func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			s.end = time.Now()
		}()
		length, err := time.ParseDuration(r.URL.Query().Get("for"))
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for until := time.Now().Add(length); time.Now().Before(until); {
			if _, err := io.WriteString(w, "x"); err != nil {
				return
			}
			w.(http.Flusher).Flush()
			select {
			case <-tick.C:
			case <-r.Context().Done():
				return
			}
		}
	}
}

// closes is for how long a backend may not have noticed that a stream is closed.
const closes = 500 * time.Millisecond

// overlaps lists the streams of one session that ran on two backends at once.
func (l *ledger) overlaps() (all []string, moved int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for session, streams := range l.streams {
		homes := make(map[string]bool)
		for i, a := range streams {
			homes[a.backend] = true
			for _, b := range streams[i+1:] {
				if a.backend != b.backend && b.began.Before(a.end.Add(-closes)) && a.began.Before(b.end.Add(-closes)) {
					all = append(all, fmt.Sprintf("%s: on %s for %v, and from %v after its begin on %s for %v", session, a.backend, a.end.Sub(a.began), b.began.Sub(a.began), b.backend, b.end.Sub(b.began)))
				}
			}
		}
		moved += len(homes) - 1
	}
	return all, moved
}

// TestOneBackendAtATime: three nodes in processes of their own are stopped and go
// on (SIGSTOP), some for longer than a lease and a leader too, while sessions take
// turns through all of them and are moved: no two streams of a session are at two
// backends at once.
func TestOneBackendAtATime(t *testing.T) {
	const lasts, sessions = 15 * time.Second, 8
	l := &ledger{streams: make(map[string][]*span)}
	var backends []string
	for _, id := range []string{"b1", "b2", "b3"} {
		s := httptest.NewServer(l.serve(id))
		t.Cleanup(s.Close)
		backends = append(backends, fmt.Sprintf("{id: %s, url: %q}", id, s.URL))
	}
	nodes := processes(t, 3, backends)
	browser := &http.Client{Timeout: 8 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	for _, n := range nodes {
		eventually(t, settleTime, func() string { return n.wants(t) })
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	ctx, cancel := context.WithTimeout(t.Context(), lasts)
	defer cancel()
	var all sync.WaitGroup
	var answered, refused tally
	for i := range 2 * sessions {
		all.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(i)))
			for ctx.Err() == nil {
				n := nodes[r.IntN(len(nodes))]
				length := time.Duration(50+r.IntN(300)) * time.Millisecond
				if r.IntN(3) == 0 {
					length *= 7 // longer than a close may take to be noticed
				}
				if n.turn(ctx, browser, fmt.Sprint("s", i%sessions), length) {
					answered.add()
				} else {
					refused.add()
				}
				pauseFor(ctx, time.Duration(r.IntN(1500))*time.Millisecond)
			}
		})
	}
	all.Go(func() { // an operator
		r := rand.New(rand.NewPCG(seed, 100))
		for ctx.Err() == nil {
			nodes[r.IntN(3)].move(ctx, fmt.Sprint("s", r.IntN(sessions)), fmt.Sprint("b", 1+r.IntN(3)))
			pauseFor(ctx, time.Duration(r.IntN(200))*time.Millisecond)
		}
	})
	r := rand.New(rand.NewPCG(seed, 200))
	for ctx.Err() == nil {
		n := nodes[r.IntN(len(nodes))]
		n.signal(t, syscall.SIGSTOP)
		pauseFor(ctx, time.Duration(200+r.IntN(3300))*time.Millisecond)
		n.signal(t, syscall.SIGCONT)
		pauseFor(ctx, time.Duration(r.IntN(2000))*time.Millisecond)
	}
	all.Wait()
	eventually(t, patience, func() string { return l.running() })
	wrong, moved := l.overlaps()
	for _, text := range wrong {
		t.Errorf("seed %d: two at once: %s", seed, text)
	}
	t.Logf("%d streams, %d turns answered whole, %d not, sessions were seen at %d more backends than one each", l.total, answered.n, refused.n, moved)
	if l.total < 60 || moved == 0 {
		t.Errorf("%d streams and %d moves show little", l.total, moved)
	}
}

type tally struct {
	mu sync.Mutex
	n  int
}

func (c *tally) add() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
}

func pauseFor(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

func (l *ledger) running() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	for session, streams := range l.streams {
		for _, s := range streams {
			if s.end.IsZero() {
				return "a stream of " + session + " still runs"
			}
		}
	}
	return ""
}

// wants says what a node lacks to serve sessions.
func (p *process) wants(t *testing.T) string {
	var l api.ShardList
	if err := p.admin.Get(t.Context(), &l, "shards"); err != nil {
		return err.Error()
	}
	if len(l.Shards) < 5 {
		return fmt.Sprintf("%d shards", len(l.Shards))
	}
	for _, s := range l.Shards {
		if why := unsettled(s, 3); why != "" {
			return fmt.Sprintf("shard %d: %s", s.ID, why)
		}
	}
	return ""
}

// turn says whether a session's turn was answered whole; it is given up where the
// node is stopped for too long.
func (p *process) turn(ctx context.Context, client *http.Client, session string, length time.Duration) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+"/?for="+length.String(), nil)
	if err != nil {
		return false
	}
	req.Header.Set("X-Session-ID", session)
	resp, err := client.Do(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return err == nil && resp.StatusCode == http.StatusOK
}

// move asks for one; whether it is made shows at the backends.
func (p *process) move(ctx context.Context, session, to string) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_ = p.admin.Post(ctx, api.Destination{Backend: to}, "sessions", "llm", session, "move")
}
