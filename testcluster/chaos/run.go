package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/starling-lb/starling/testcluster/chaos/history"
	"github.com/starling-lb/starling/testcluster/chaos/traffic"
	"github.com/starling-lb/starling/testcluster/llm"
)

// Options say how a scenario is run. What is left zero is as the scenario has it.
type Options struct {
	Seed     uint64
	Duration time.Duration // the scenario's is stretched, or pressed, to it
	Nodes    int
	Backends int
	Level    string    // Usual
	Program  []string  // that runs RunNode with the two arguments that follow; not needed inside
	Old      []string  // an older starling, that serves the file that follows; empty: upgrades are restarts
	Out      io.Writer // what happens, while it does; nil: nobody hears it
	Dir      string    // that the run's own directory is made in; empty: the usual one
	Logs     string    // directory that the nodes' logs are left in; empty: they are not
	Command  string    // that repeats the run, as it is told

	relayed bool // the scenario wants relays
}

const (
	foundTime  = 90 * time.Second // for a cluster to be whole at first
	warm       = 2 * time.Second  // of traffic before anything happens
	healTime   = 60 * time.Second // for all to be well after the last fault
	slowTime   = 4 * time.Minute  // likewise, where nodes were lost for good
	tailTime   = 30 * time.Second // for what runs to end once no more begins
	settleTime = 15 * time.Second // for counts to be at zero after that
)

// run is one run.
type run struct {
	o        Options
	scenario Scenario
	rig      *rig
	traffic  *traffic.Traffic
	screen   *screen
	history  *history.Run
	hurting  sync.WaitGroup // steps under way
	rolling  sync.Mutex     // held by the one that hands nodes over

	mu   sync.Mutex // guards what follows, and what history is told meanwhile
	dice *rand.Rand
}

// Run runs a scenario and hands back what was seen. Its error says that the run
// could not be made; what the cluster did wrong is for judge to find.
func Run(ctx context.Context, s Scenario, o Options) (*history.Run, error) {
	if o.Level == "" {
		o.Level = Usual
	}
	if s.Level != "any" && s.Level != o.Level && (s.Level == Inside || o.Level == Inside) {
		return nil, fmt.Errorf("scenario %s: %w: it wants %s", s.Name, ErrLevel, s.Level)
	}
	s = s.fit(o)
	g, err := newRig(ctx, o, s)
	if err != nil {
		return nil, fmt.Errorf("scenario %s: %w", s.Name, err)
	}
	r := &run{o: o, scenario: s, rig: g, dice: rand.New(rand.NewPCG(o.Seed, 7)), screen: newScreen(o.Out)}
	r.history = &history.Run{
		Scenario: s.Name, Seed: o.Seed, Level: o.Level, Nodes: s.Nodes, Backends: s.Backends, Consistency: s.Consistency, Spread: s.Spread, Command: o.Command,
		Recovered: map[string]time.Duration{}, Wanted: map[string]time.Duration{},
	}
	err = errors.Join(r.run(ctx), r.gather(), g.stop())
	if err != nil {
		return nil, fmt.Errorf("scenario %s: %w", s.Name, err)
	}
	return r.history, nil
}

// fit is the scenario as the options want it.
func (s Scenario) fit(o Options) Scenario {
	if o.Nodes > 0 {
		s.Nodes = o.Nodes
	}
	if o.Backends > 0 {
		s.Backends = o.Backends
	}
	if o.Duration == 0 || o.Duration == s.Duration {
		return s
	}
	by := float64(o.Duration) / float64(s.Duration)
	s.Steps, s.Duration = slices.Clone(s.Steps), o.Duration
	for i := range s.Steps {
		st := &s.Steps[i]
		st.At, st.For = time.Duration(float64(st.At)*by), time.Duration(float64(st.For)*by)
	}
	return s
}

func (r *run) run(ctx context.Context) error {
	if err := r.found(ctx); err != nil {
		if errors.Is(err, errUnfounded) && ctx.Err() == nil {
			return nil // which is for judge to say
		}
		return errors.Join(err, ctx.Err()) // which may be why
	}
	rows, err := r.scenario.Traffic.rows()
	if err != nil {
		return err
	}
	r.traffic, err = traffic.New(traffic.Options{
		Entries: r.rig.entries, Admins: r.rig.admins, Seed: r.o.Seed, Rate: r.scenario.Traffic.Rate, Regulars: r.scenario.Traffic.Sessions, Retries: r.scenario.Traffic.Retries, Trace: rows,
	})
	if err != nil {
		return err
	}
	if err := r.traffic.Start(ctx); err != nil {
		return err
	}
	looking, cancel := context.WithCancel(ctx)
	var eyes sync.WaitGroup
	eyes.Go(func() { r.sampleLoop(looking) })
	eyes.Go(func() { r.reignLoop(looking) })
	r.hurt(ctx)
	err = r.heal(ctx)
	last, done := context.WithTimeout(ctx, tailTime)
	defer done()
	err = errors.Join(err, r.traffic.Stop(last))
	r.mu.Lock()
	r.history.Ended = time.Now()
	r.mu.Unlock()
	r.quiet(ctx)
	cancel()
	eyes.Wait()
	r.history.Last = r.last(ctx)
	return err
}

// found starts the nodes, hurts those that are to be hurt meanwhile, and waits for
// a cluster.
func (r *run) found(ctx context.Context) error {
	r.screen.say("%d nodes and %d backends, %s, seed %d", r.scenario.Nodes, r.scenario.Backends, r.o.Level, r.o.Seed)
	ctx, cancel := context.WithTimeout(ctx, foundTime)
	defer cancel()
	r.history.Began = time.Now()
	var all sync.WaitGroup
	errs := make([]error, len(r.rig.live()))
	for i, m := range r.rig.live() {
		all.Go(func() { errs[i] = r.rig.start(ctx, m) })
	}
	for i := range r.scenario.Steps {
		if s := r.scenario.Steps[i]; s.When == "bootstrap" {
			all.Go(func() { r.do(ctx, s, false) })
		}
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if lacks := r.await(ctx, foundTime, r.whole); lacks != "" {
		return r.unfounded(lacks)
	}
	r.screen.say("founded after %.1f s", time.Since(r.history.Began).Seconds())
	var err error
	for range lastTries { // on a busy machine one may not answer in time
		if r.history.First, err = r.dumps(ctx, false); err == nil || ctx.Err() != nil {
			break
		}
	}
	return err
}

// errUnfounded says that nodes that ran did not become a cluster in time.
var errUnfounded = errors.New("no cluster was founded")

// unfounded ends a run before its traffic: what nodes say of themselves then is
// what there is to judge.
func (r *run) unfounded(lacks string) error {
	h := r.history
	h.Healed, h.Ended = h.Began, time.Now()
	h.Wanted["cluster"] = foundTime
	h.Trouble = append(h.Trouble, "cluster: "+lacks)
	ctx, cancel := context.WithTimeout(context.Background(), foundTime)
	defer cancel()
	var err error
	h.First, err = r.dumps(ctx, false)
	return errors.Join(fmt.Errorf("%w in %v: %s", errUnfounded, foundTime, lacks), err)
}

// hurt lets the steps happen, and the nemesis.
func (r *run) hurt(ctx context.Context) {
	began := time.Now().Add(warm)
	ctx, cancel := context.WithDeadline(ctx, began.Add(r.scenario.Duration))
	defer cancel()
	for i := range r.scenario.Steps {
		if s := r.scenario.Steps[i]; s.When != "bootstrap" {
			r.hurting.Go(func() {
				if pause(ctx, time.Until(began.Add(s.At))) {
					r.do(ctx, s, false)
				}
			})
		}
	}
	if n := r.scenario.Nemesis; n != nil {
		for i := range n.Faults {
			dice := rand.New(rand.NewPCG(r.o.Seed, 100+uint64(i)))
			r.hurting.Go(func() { r.nemesisLoop(ctx, n, dice) })
		}
	}
	<-ctx.Done()
	r.hurting.Wait() // each step undoes what it did
}

// heal waits until all is well, traffic going on.
func (r *run) heal(ctx context.Context) error {
	r.mu.Lock()
	r.history.Healed = time.Now()
	r.mu.Unlock()
	r.screen.say("all faults are over")
	limit := healTime
	for _, f := range r.history.Faults {
		if f.Kind == history.Wipe || f.Kind == history.Leave || f.Kind == history.Join {
			limit = slowTime
		}
	}
	var all sync.WaitGroup
	for what, look := range r.wants() {
		all.Go(func() {
			lacks := r.await(ctx, limit, look)
			took := time.Since(r.history.Healed)
			r.mu.Lock()
			defer r.mu.Unlock()
			if r.history.Wanted[what] = limit; lacks == "" {
				r.history.Recovered[what] = took
				return
			}
			r.history.Trouble = append(r.history.Trouble, fmt.Sprintf("%s: %s", what, lacks))
		})
	}
	all.Wait()
	r.screen.say("well again after %.1f s", time.Since(r.history.Healed).Seconds())
	return ctx.Err()
}

// quiet waits until nobody counts anything any more.
func (r *run) quiet(ctx context.Context) {
	began := time.Now()
	lacks := r.await(ctx, settleTime, r.counters)
	r.history.Wanted["counters"] = settleTime
	if lacks == "" {
		r.history.Recovered["counters"] = time.Since(began)
		return
	}
	r.history.Trouble = append(r.history.Trouble, "counters: "+lacks)
}

// gather reads what was written down elsewhere.
func (r *run) gather() error {
	h := r.history
	if r.traffic != nil {
		now, cancel := context.WithCancel(context.Background())
		cancel()
		_ = r.traffic.Stop(now) // it has, unless something went wrong
		h.Turns, h.Reads = r.traffic.Turns(), r.traffic.Reads()
	}
	for _, b := range r.rig.servers() {
		turns, lost := b.Turns(0)
		if h.Served = append(h.Served, turns...); lost > 0 {
			h.Trouble = append(h.Trouble, fmt.Sprintf("%d turns of %s are not on record", lost, b.ID))
		}
	}
	slices.SortStableFunc(h.Served, func(a, b llm.Turn) int { return a.Start.Compare(b.Start) })
	h.Join()
	var errs []error
	r.rig.mu.Lock()
	defer r.rig.mu.Unlock()
	for _, m := range r.rig.members {
		errs = append(errs, r.lines(m), r.keep(m))
	}
	return errors.Join(errs...)
}

func (r *run) lines(m *member) error {
	f, err := os.Open(r.rig.accessLog(m))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	lines, err := history.ReadLines(m.name, f)
	r.history.Lines = append(r.history.Lines, lines...)
	return err
}

// keep leaves a node's log where it was asked for.
func (r *run) keep(m *member) error {
	if r.o.Logs == "" {
		return nil
	}
	data, err := os.ReadFile(filepath.Join(r.rig.dir, m.name+".log"))
	if err == nil {
		err = os.WriteFile(filepath.Join(r.o.Logs, m.name+".log"), data, 0o600)
	}
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
