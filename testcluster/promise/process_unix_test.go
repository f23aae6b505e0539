//go:build unix

package promise_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/starling-lb/starling/node/api"
	"github.com/starling-lb/starling/node/client"
	"github.com/starling-lb/starling/testcluster/apart"
)

// TestNodeOfItsOwn is what a node's process runs; in the tests' own there is nothing for
// it to do.
func TestNodeOfItsOwn(t *testing.T) {
	if err := apart.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// process is a node in a process of its own, which may die and be started again.
type process struct {
	config string

	mu     sync.Mutex     // guards what follows
	own    *apart.Process // nil: it was ended
	url    string
	admin  *client.Client
	killed []time.Time
	stops  [][2]time.Time // when it was stopped, and went on
}

// theatre is a cluster of processes with their backends' ledger.
type theatre struct {
	*ledger
	nodes []*process
	logs  []string
}

// newTheatre starts as many nodes as one cluster. An address that was free may be
// taken by now: then all begin anew.
func newTheatre(t *testing.T, nodes int, consistency string) *theatre {
	l := newLedger()
	var backends []string
	for _, b := range l.backends(t, 3) {
		backends = append(backends, fmt.Sprintf("{id: %s, url: %q}", b.ID, b.URL))
	}
	for range 5 {
		if h := tryTheatre(t, l, nodes, consistency, strings.Join(backends, ", ")); h != nil {
			for _, p := range h.nodes {
				eventually(t, settleTime, func() string { return whole(p.asked(), 3) })
			}
			return h
		}
	}
	t.Fatal("the nodes did not start")
	return nil
}

func tryTheatre(t *testing.T, l *ledger, nodes int, consistency, backends string) *theatre {
	h, dir, seeds := &theatre{ledger: l}, t.TempDir(), make([]string, nodes)
	for i := range seeds {
		seeds[i] = freeAddr(t)
	}
	for i := range nodes {
		log := filepath.Join(dir, fmt.Sprintf("n%d.log", i))
		text := fmt.Sprintf(`
node: {name: n%d, data_dir: %q}
cluster: {bind: %q, rpc: %q, seeds: ["%s"], bootstrap_expect: %d}
shards: {count: 4}
admin: {address: "127.0.0.1:0"}
access_log: {path: %q}
listeners: [{address: "127.0.0.1:0"}]
pools:
  llm:
    backends: [%s]
    backend: {engine: none}
    sticky: {consistency: %s, epoch_header: %s}
    health: {enabled: false}
    rebalance: {enabled: false}
`, i, filepath.Join(dir, fmt.Sprint("n", i)), seeds[i], freeAddr(t), strings.Join(seeds, `", "`), nodes, log, backends, consistency, epochHeader)
		p := &process{config: filepath.Join(dir, fmt.Sprintf("n%d.yaml", i))}
		if err := os.WriteFile(p.config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.end)
		if !p.start(t) {
			for _, other := range h.nodes {
				other.end()
			}
			return nil
		}
		h.nodes, h.logs = append(h.nodes, p), append(h.logs, log)
	}
	return h
}

func freeAddr(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// start says whether the node could.
func (p *process) start(t *testing.T) bool {
	own, err := apart.Start("TestNodeOfItsOwn", p.config, nil)
	if err != nil {
		t.Log(err)
		return false
	}
	c, err := client.New("http://"+own.Admin, "")
	if err != nil {
		own.Kill()
		t.Fatal(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.own, p.url, p.admin = own, "http://"+own.Proxy, c
	return true
}

// end kills the process, stopped or not, and waits for it.
func (p *process) end() {
	p.mu.Lock()
	own := p.own
	p.own = nil
	p.mu.Unlock()
	if own != nil {
		own.Kill()
	}
}

func (p *process) asked() *client.Client {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.admin
}

func (p *process) at() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.url
}

// kill ends the node by kill -9, and starts it again.
func (p *process) kill(t *testing.T, dead context.Context, rest time.Duration) {
	p.mu.Lock()
	p.killed = append(p.killed, time.Now())
	p.mu.Unlock()
	p.end()
	pauseFor(dead, rest)
	eventually(t, patience, func() string {
		if !p.start(t) {
			return "the node does not start again"
		}
		return ""
	})
}

// pause stops the node for a while (SIGSTOP).
func (p *process) pause(t *testing.T, ctx context.Context, d time.Duration) {
	t.Helper()
	p.signal(t, syscall.SIGSTOP)
	from := time.Now()
	pauseFor(ctx, d)
	p.signal(t, syscall.SIGCONT)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stops = append(p.stops, [2]time.Time{from, time.Now()})
}

func (p *process) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := p.own.Signal(s); err != nil {
		t.Error(err)
	}
}

// away says whether the node was stopped, or killed, while a stream ran.
func (p *process) away(s *span) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, at := range p.killed {
		if at.After(s.began) && at.Before(s.end.Add(time.Second)) {
			return true
		}
	}
	for _, stop := range p.stops {
		if stop[0].Before(s.end) && stop[1].After(s.began.Add(-closes)) {
			return true
		}
	}
	return false
}

// leader is a node that leads a session shard, as one that answers knows.
func (h *theatre) leader(t *testing.T, shard int) *process {
	for _, p := range h.nodes {
		var l api.ShardList
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		err := p.asked().Get(ctx, &l, "shards")
		cancel()
		if err != nil {
			continue
		}
		for _, s := range l.Shards {
			if s.ID == shard && strings.HasPrefix(s.Leader, "n") {
				return h.nodes[s.Leader[1]-'0']
			}
		}
	}
	return h.nodes[shard%len(h.nodes)]
}

// move asks for one; whether it is made shows at the backends.
func (p *process) move(ctx context.Context, session, to string, within time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	_ = p.asked().Post(ctx, api.Destination{Backend: to}, "sessions", pool, session, "move")
}
