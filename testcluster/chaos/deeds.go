package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/starling-lb/starling/testcluster/chaos/history"
)

// deed is what a fault does. It returns once it is done; undo, if any, is called
// when the fault has lasted.
type deed func(ctx context.Context, r *run, s Step) (done, error)

// done is what was done, in words and in names.
type done struct {
	target, breaks []string
	detail         string
	undo           func(context.Context) error // nil: there is nothing to be undone
}

func deeds() map[history.Kind]deed {
	return map[history.Kind]deed{
		history.Partition: partition, history.OneWay: oneWay, history.Flap: flap, history.Loss: lossy, history.Delay: delayed, history.Reset: reset,
		history.Duplicate: strays("come twice"), history.Reorder: strays("come behind others"), history.Corrupt: strays("have a bit that is another"),
		history.Kill: kill, history.Pause: freeze, history.Disk: badDisk, history.Clock: jump,
		history.Restart: restart, history.Upgrade: upgrade, history.HandOver: handOver, history.Twice: twice, history.Move: move, history.Wipe: wipe, history.Join: join, history.Leave: leave,
		history.Backend: badBackend, history.AddBackend: addBackends, history.Traffic: busier, history.Drain: drain, history.Operate: operate,
	}
}

func kinds() (all []string) {
	for k := range deeds() {
		all = append(all, string(k))
	}
	slices.Sort(all)
	return all
}

// do is a step from its beginning to its end. Of one that is there by chance it is no
// trouble that it could not be done: other faults may stand against it.
func (r *run) do(ctx context.Context, s Step, byChance bool) {
	if err := r.wait(ctx, &s); err != nil {
		r.trouble(s, err)
		return
	}
	id := r.begin(s)
	acting, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime) // what has begun is done, also where the run ends
	defer cancel()
	d, err := deeds()[s.Fault](acting, r, s)
	if errors.Is(err, ErrLevel) {
		d.detail, d.breaks, d.undo = "left out: "+err.Error(), nil, nil
		r.note(id, s, d, nil)
		r.over(id, s, d)
		return
	}
	if err != nil && !byChance {
		r.trouble(s, err)
	}
	r.note(id, s, d, err)
	if d.undo != nil {
		pause(ctx, s.For)
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
		defer cancel()
		if err := d.undo(last); err != nil {
			r.trouble(s, err)
		}
	}
	r.over(id, s, d)
}

const undoTime = 2 * time.Minute

// begin notes a fault before it is done, so that nothing that it does comes before it.
func (r *run) begin(s Step) (id int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	id = len(r.history.Faults)
	r.history.Faults = append(r.history.Faults, history.Fault{ID: id, Kind: s.Fault, Began: time.Now()})
	return id
}

func (r *run) note(id int, s Step, d done, err error) {
	r.mu.Lock()
	f := &r.history.Faults[id]
	f.Target, f.Breaks, f.Detail = d.target, append(f.Breaks, d.breaks...), d.detail
	if err != nil {
		f.Detail = "failed: " + err.Error()
	}
	words := f.Detail
	r.mu.Unlock()
	r.screen.say("%s %s: %s", s.Fault, strings.Join(d.target, " "), words)
}

// breaks says early on that a fault may break streams.
func (r *run) breaks(k history.Kind, names ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.history.Faults {
		if f := &r.history.Faults[i]; f.Kind == k && f.Ended.IsZero() && f.Detail == "" {
			f.Breaks = append(f.Breaks, names...)
		}
	}
}

func (r *run) over(id int, s Step, d done) {
	r.mu.Lock()
	r.history.Faults[id].Ended = time.Now()
	r.mu.Unlock()
	if d.undo != nil {
		r.screen.say("%s %s: over", s.Fault, strings.Join(d.target, " "))
	}
}

func (r *run) trouble(s Step, err error) {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) && s.When != "now" {
		return // what was waited for did not come in time
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.history.Trouble = append(r.history.Trouble, fmt.Sprintf("%s: %v", s.Fault, err))
}

// chance is one of n.
func (r *run) chance(n int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.dice.IntN(n)
}

// fork is chance for what goes on beside the steps.
func (r *run) fork() *rand.Rand {
	r.mu.Lock()
	defer r.mu.Unlock()
	return rand.New(rand.NewPCG(r.dice.Uint64(), 0))
}

// nodes are those that a step means.
func (r *run) nodes(ctx context.Context, target string) ([]*member, error) {
	live := r.rig.live()
	switch target {
	case "all":
		return live, nil
	case "half": // the lesser
		first := r.chance(len(live))
		var some []*member
		for i := range max(1, (len(live)-1)/2) {
			some = append(some, live[(first+i)%len(live)])
		}
		return some, nil
	case "any":
		up := r.rig.up()
		if len(up) == 0 {
			return nil, errors.New("no node runs")
		}
		return up[r.chance(len(up)):][:1], nil
	case "leader", "meta":
		name, err := r.leader(ctx, target == "meta")
		if err != nil {
			return nil, err
		}
		target = name
	}
	var some []*member
	for _, name := range strings.FieldsFunc(target, func(c rune) bool { return c == ',' || c == ' ' }) {
		i := slices.IndexFunc(live, func(m *member) bool { return m.name == name })
		if i < 0 {
			return nil, fmt.Errorf("there is no node %q", name)
		}
		some = append(some, live[i])
	}
	return some, nil
}

func names(all []*member) (list []string) {
	for _, m := range all {
		list = append(list, m.name)
	}
	return list
}

// on is the path that a step asks for.
func (s Step) on(p path) path {
	p.TCP, p.UDP = s.Over == "tcp", s.Over == "udp"
	return p
}

func (s Step) protocol() string {
	return map[string]string{"tcp": ", TCP alone", "udp": ", UDP alone"}[s.Over]
}

// waysOf bends the ways of a step's nodes.
func waysOf(ctx context.Context, r *run, s Step, p path, others func(nodes []string) []string, back bool, detail string) (done, error) {
	nodes, err := r.nodes(ctx, s.Target)
	if err != nil {
		return done{}, err
	}
	id, list := r.rig.number(), names(nodes)
	r.rig.bend(id, between(list, others(list), s.on(p), back))
	return done{target: list, detail: detail + s.protocol(), undo: func(context.Context) error { r.rig.bend(id, nil); return nil }}, nil
}

// rest are the nodes that are not listed.
func (r *run) rest(list []string) []string {
	return slices.DeleteFunc(names(r.rig.live()), func(n string) bool { return slices.Contains(list, n) })
}

// everybody are all nodes, whoever is listed.
func (r *run) everybody([]string) []string { return names(r.rig.live()) }

func partition(ctx context.Context, r *run, s Step) (done, error) {
	return waysOf(ctx, r, s, path{Off: true}, r.rest, true, "cut off from the others")
}

func oneWay(ctx context.Context, r *run, s Step) (done, error) {
	return waysOf(ctx, r, s, path{Off: true}, r.rest, false, "what it sends the others is lost")
}

func lossy(ctx context.Context, r *run, s Step) (done, error) {
	return waysOf(ctx, r, s, path{Loss: s.Loss}, r.everybody, true, fmt.Sprintf("%.0f %% is lost between it and the others", 100*s.Loss))
}

func delayed(ctx context.Context, r *run, s Step) (done, error) {
	return waysOf(ctx, r, s, path{Delay: s.By}, r.everybody, true, fmt.Sprintf("%v later between it and the others", s.By))
}

// strays are deeds that packets alone suffer.
func strays(words string) deed {
	return func(ctx context.Context, r *run, s Step) (done, error) {
		p := map[history.Kind]path{history.Duplicate: {Twice: s.Share}, history.Reorder: {Behind: s.Share}, history.Corrupt: {Flipped: s.Share}}[s.Fault]
		s.Over = "both" // there is but one protocol of packets
		return waysOf(ctx, r, s, p, r.everybody, true, fmt.Sprintf("%.0f %% of the packets between it and the others %s", 100*s.Share, words))
	}
}

// flap cuts nodes off and lets them back, again and again.
func flap(ctx context.Context, r *run, s Step) (done, error) {
	nodes, err := r.nodes(ctx, s.Target)
	if err != nil {
		return done{}, err
	}
	id, list := r.rig.number(), names(nodes)
	off := between(list, r.rest(list), s.on(path{Off: true}), true)
	period := max(s.By, 200*time.Millisecond)
	over, ended := context.WithCancel(context.WithoutCancel(ctx))
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for on := true; ; on = !on {
			if r.rig.bend(id, off); !on {
				r.rig.bend(id, nil)
			}
			if !pause(over, period/2) {
				r.rig.bend(id, nil)
				return
			}
		}
	}()
	return done{target: list, detail: fmt.Sprintf("cut off and back, every %v", period), undo: func(context.Context) error {
		ended()
		<-stopped
		return nil
	}}, nil
}

func reset(ctx context.Context, r *run, s Step) (done, error) {
	nodes, err := r.nodes(ctx, s.Target)
	if err != nil {
		return done{}, err
	}
	n := 0
	for _, a := range nodes {
		for _, b := range r.rig.live() {
			n += r.rig.ground.ways().Reset(a.name, b.name)
		}
	}
	return done{target: names(nodes), detail: fmt.Sprintf("%d connections to other nodes are reset", n)}, nil
}

const spellTime = 20 * time.Second // that a step's moment is awaited for

// wait waits for the moment that a step is aimed at, and aims it at the node that
// it is about, if any will do.
func (r *run) wait(ctx context.Context, s *Step) error {
	look := map[string]func(context.Context) (*member, bool){"snapshot": r.snapshots, "step": r.steps, "bootstrap": r.founds}[s.When]
	if look == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, spellTime)
	defer cancel()
	for {
		m, now := look(ctx)
		if now && m != nil && s.Target == "any" {
			s.Target = m.name
		}
		if now {
			return nil
		}
		if !pause(ctx, time.Millisecond) {
			return ctx.Err()
		}
	}
}

// operate moves sessions, as an operator would, one after the other.
func operate(ctx context.Context, r *run, s Step) (done, error) {
	over, ended := context.WithCancel(context.WithoutCancel(ctx))
	stopped, dice := make(chan struct{}), r.fork()
	go func() {
		defer close(stopped)
		for pause(over, 100*time.Millisecond) {
			r.moveOne(over, dice)
		}
	}()
	return done{detail: "sessions are moved, ten a second", undo: func(context.Context) error {
		ended()
		<-stopped
		return nil
	}}, nil
}
