package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/starling-lb/starling/node/client"
	"github.com/starling-lb/starling/testcluster"
	"github.com/starling-lb/starling/testcluster/chaos/history"
	"github.com/starling-lb/starling/testcluster/llm"
)

const (
	drainTime = 40 * time.Second // that a node may take to end its streams: longer than any client waits
	shards    = 4
	seedNodes = 3
)

// rig is the cluster that is hurt.
type rig struct {
	o        Options
	scenario Scenario
	dir      string
	ground   ground

	mu       sync.Mutex // guards what follows
	members  []*member
	backends []*testcluster.Backend
	harm     map[int][]bent // by fault: what it does to the ways between nodes
	harms    int
	bent     map[[2]string]bool
}

// ground is what nodes run on: this process, or processes of their own.
type ground interface {
	places(i int) (places, error)
	begin(ctx context.Context, m *member, program []string) (*body, error)
	twin(m *member) (served bool, words string, err error)
	ways() ways
}

// ways are what is between the nodes; fault.Links is one.
type ways interface {
	Set(from, to string, p path)
	Reset(a, b string) int
}

// places are a node's addresses.
type places struct {
	gossip, rpc, proxy, admin string
	advertise                 string // host; empty: that of gossip
	seed                      string // that others join by
}

// body is a node that runs.
type body struct {
	kill   func()                      // as kill -9
	stop   func(context.Context) error // drains
	freeze func(on bool) error
	tell   func(command string) error // see obey
	died   <-chan struct{}            // it has ended, however

	// handOver has another process become the node, and says in words how that went.
	// What this one has begun it carries to the end.
	handOver func(context.Context) (*body, string, error)
}

// member is a node of the cluster, up or not.
type member struct {
	name   string
	number int
	moves  int // to other addresses
	at     places
	file   string
	admin  *client.Client
	logs   int // entries after which its logs are cut; 0: as ever

	turn    sync.Mutex // who starts or ends it has it; it guards program
	program []string   // that it begins with, and a file's path follows; nil: this one

	body *body // nil: down. The rig's lock guards it and what follows
	gone bool  // for good
	new  bool  // it has not been ready yet: balancers do not know it
}

func newRig(ctx context.Context, o Options, s Scenario) (*rig, error) {
	o.relayed = s.relayed()
	r := &rig{o: o, scenario: s, harm: map[int][]bent{}, bent: map[[2]string]bool{}}
	var err error
	if r.dir, err = os.MkdirTemp(o.Dir, "starling-chaos-"); err != nil {
		return nil, fmt.Errorf("directory of the cluster: %w", err)
	}
	if r.ground, err = newGround(o, r.dir); err != nil {
		return nil, errors.Join(err, os.RemoveAll(r.dir))
	}
	for range s.Backends {
		if _, err := r.addBackend(ctx); err != nil {
			return nil, errors.Join(err, r.stop())
		}
	}
	for range s.Nodes {
		if _, err := r.addMember(); err != nil {
			return nil, errors.Join(err, r.stop())
		}
	}
	return r, nil
}

// addBackend starts one more demo backend.
func (r *rig) addBackend(ctx context.Context) (*testcluster.Backend, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	id := fmt.Sprintf("b%d", len(r.backends)+1)
	s, err := llm.New(llm.Options{
		ID: id, Decode: 120, Prefill: 20_000, KeepTurns: 200_000, WarmSessions: 10_000,
	})
	if err == nil {
		err = s.Start(ctx)
	}
	if err != nil {
		return nil, err
	}
	b := &testcluster.Backend{Server: s, ID: id}
	r.backends = append(r.backends, b)
	return b, nil
}

// addMember makes one more node, which does not run yet.
func (r *rig) addMember() (*member, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := &member{number: len(r.members) + 1, logs: r.scenario.Logs}
	m.name = fmt.Sprintf("n%d", m.number)
	if len(r.o.Old) > 0 && r.upgrades() {
		m.program = r.o.Old
	}
	if err := r.settle(m); err != nil {
		return nil, err
	}
	r.members = append(r.members, m)
	return m, nil
}

func (r *rig) upgrades() bool {
	return slices.ContainsFunc(r.scenario.Steps, func(s Step) bool { return s.Fault == history.Upgrade || s.Fault == history.HandOver })
}

// settle gives a node addresses of its own, and a file that says them.
func (r *rig) settle(m *member) (err error) {
	if m.at, err = r.ground.places(m.number + 40*m.moves); err != nil {
		return err
	}
	if m.admin, err = client.New(m.at.admin, ""); err != nil {
		return err
	}
	return nil
}

// write writes the node's file: it names who is there now.
func (r *rig) write(m *member) error {
	data, err := json.Marshal(r.config(m)) // which YAML is, too
	if err != nil {
		return err
	}
	m.file = filepath.Join(r.dir, m.name+".yaml")
	return os.WriteFile(m.file, data, 0o600)
}

func (r *rig) dataDir(m *member) string {
	return filepath.Join(r.dir, m.name+".data")
}

func (r *rig) accessLog(m *member) string { return filepath.Join(r.dir, m.name+".access") }

// keys are a section of a node's file.
type keys map[string]any

// config is a node's file. It names no key that can be left out, so that an older
// program can read it.
func (r *rig) config(m *member) keys {
	r.mu.Lock()
	defer r.mu.Unlock()
	var seeds []string
	for _, other := range r.members[:min(seedNodes, len(r.members))] {
		seeds = append(seeds, other.at.seed)
	}
	cluster := keys{"bind": m.at.gossip, "rpc": m.at.rpc, "seeds": seeds, "bootstrap_expect": r.scenario.Nodes}
	if m.at.advertise != "" {
		cluster["advertise"] = m.at.advertise
	}
	return keys{
		"node":       keys{"name": m.name, "data_dir": r.dataDir(m), "drain_timeout": drainTime.String()},
		"cluster":    cluster,
		"shards":     keys{"count": shards},
		"admin":      keys{"address": m.at.admin},
		"access_log": keys{"path": r.accessLog(m)},
		"reload":     keys{"watch": false},
		"listeners":  []keys{{"address": m.at.proxy, "trusted_proxies": []string{"127.0.0.0/8"}}}, // whose request ids count
		"pools":      keys{testcluster.PoolName: r.pool()},
	}
}

// pool has backends come back soon, and look at each other often; mu is held.
func (r *rig) pool() keys {
	var backends []keys
	for _, b := range r.backends[:r.scenario.Backends] {
		backends = append(backends, keys{"id": b.ID, "url": b.URL()})
	}
	return keys{
		"backends":  backends,
		"backend":   keys{"max_streams": r.scenario.Streams},
		"queue":     keys{"max_waiting": r.scenario.Queue, "timeout": "5s"},
		"outlier":   keys{"base_ejection": "2s", "max_ejection": "4s"},
		"health":    keys{"interval": "1s", "down_interval": "1s"},
		"rebalance": keys{"enabled": r.scenario.Spread, "interval": "1s", "max_rate": "off"},
		"sticky":    keys{"consistency": r.scenario.Consistency, "epoch_header": "X-Starling-Epoch"}, // which the demo backends note
	}
}

// start has a node run.
func (r *rig) start(ctx context.Context, m *member) error {
	m.turn.Lock()
	defer m.turn.Unlock()
	return r.startNow(ctx, m)
}

const again = 5 // starts that find an address taken

// startNow is called with the member's turn.
func (r *rig) startNow(ctx context.Context, m *member) error {
	if r.running(m) != nil {
		return nil
	}
	if err := r.write(m); err != nil {
		return err
	}
	var b *body
	var err error
	for range again {
		if b, err = r.ground.begin(ctx, m, m.program); err == nil {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("start %s: %w", m.name, err)
	}
	r.mu.Lock()
	m.body = b
	r.mu.Unlock()
	return nil
}

// running is the node's body; nil: it is down.
func (r *rig) running(m *member) *body {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m.body != nil {
		select {
		case <-m.body.died:
			m.body = nil
		default:
		}
	}
	return m.body
}

// kill ends a node as kill -9 does.
func (r *rig) kill(m *member) {
	m.turn.Lock()
	defer m.turn.Unlock()
	if b := r.running(m); b != nil {
		b.kill()
		<-b.died
	}
}

// retire has a node drain and end.
func (r *rig) retire(ctx context.Context, m *member) error {
	m.turn.Lock()
	defer m.turn.Unlock()
	b := r.running(m)
	if b == nil {
		return nil
	}
	if err := b.stop(ctx); err != nil {
		return fmt.Errorf("end %s: %w", m.name, err)
	}
	<-b.died
	return nil
}

// live are the nodes that are meant to be there, up or down.
func (r *rig) live() (all []*member) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.members {
		if !m.gone {
			all = append(all, m)
		}
	}
	return all
}

// up are those that run.
func (r *rig) up() (all []*member) {
	for _, m := range r.live() {
		if r.running(m) != nil {
			all = append(all, m)
		}
	}
	return all
}

// entries are where clients can come in: also nodes that are down, but none that is
// new and was never ready.
func (r *rig) entries() (all []history.Entry) {
	for _, m := range r.live() {
		if r.isNew(m) {
			continue
		}
		all = append(all, history.Entry{Node: m.name, URL: "http://" + r.home(m).proxy})
	}
	return all
}

// admins are the nodes' admin APIs.
func (r *rig) admins() (all []history.Entry) {
	for _, m := range r.live() {
		all = append(all, history.Entry{Node: m.name, URL: "http://" + r.home(m).admin})
	}
	return all
}

func (r *rig) isNew(m *member) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return m.new
}

// setNew says whether a node is new.
func (r *rig) setNew(m *member, is bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m.new = is
}

// home is where a node is now.
func (r *rig) home(m *member) places {
	r.mu.Lock()
	defer r.mu.Unlock()
	return m.at
}

// client asks a node where it is now.
func (r *rig) client(m *member) *client.Client {
	r.mu.Lock()
	defer r.mu.Unlock()
	return m.admin
}

func (r *rig) servers() []*testcluster.Backend {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.backends)
}

// ask is a node that runs, by chance.
func (r *rig) ask(dice *rand.Rand) (*member, error) {
	up := r.up()
	if len(up) == 0 {
		return nil, errors.New("no node runs")
	}
	return up[dice.IntN(len(up))], nil
}

// stop ends all there is, and leaves nothing behind.
func (r *rig) stop() error {
	var all sync.WaitGroup
	for _, m := range r.live() {
		all.Go(func() { r.kill(m) })
	}
	all.Wait()
	now, cancel := context.WithCancel(context.Background())
	cancel()
	for _, b := range r.servers() {
		_ = b.Stop(now) // says only that answers were cut
	}
	if c, ok := r.ground.(interface{ end() }); ok {
		c.end()
	}
	return os.RemoveAll(r.dir)
}
