package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/starling-lb/starling/node"
	"github.com/starling-lb/starling/proxy"
	"github.com/starling-lb/starling/testcluster"
)

// Pictures of an act. A rule that looks back ten minutes needs forty to forget.
const (
	calm    = 50
	trouble = 45
	healed  = 90
)

// stage makes trouble that alerts are for, and ends it.
type stage struct {
	name   string
	alerts []string
	rest   int // pictures in which nothing happens, at the end: for rules that look back for long
	before int // likewise at the beginning

	set  func(ctx context.Context) (*scene, error)
	stir func(ctx context.Context, s *scene) error
	heal func(ctx context.Context, s *scene) error
}

// scene is what a stage plays with.
type scene struct {
	*testcluster.Cluster
	nodes  func() map[string]string // whose metrics are filmed: base URLs of the admin APIs by name
	undo   []func()                 // in the order of their being set up
	config func(*node.Config)       // replaceable, for nodes that are started anew
	notes  map[string]any
}

// perform plays a stage, and checks what the rules say of it.
func (s stage) perform(ctx context.Context, book rulebook, dir string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, once)
	defer cancel()
	f := newFilm(func(metric string) bool { return book.metrics[metric] }, nil)
	if s.set == nil { // what cannot be staged
		f.draw(s)
	} else if err := s.shoot(ctx, f); err != nil {
		return err
	}
	f.still(s.rest)
	moments := []moment{{s.before + calm - 1, false}, {s.before + calm + trouble - 1, true}, {f.pictures - 1, false}}
	return book.check(ctx, f, s.alerts, moments, filepath.Join(dir, s.alerts[0]+".yml"))
}

func (s stage) shoot(ctx context.Context, f *film) error {
	scene, err := s.set(ctx)
	if err != nil {
		return fmt.Errorf("set up: %w", err)
	}
	defer scene.end()
	f.nodes = func() map[string]string { return scene.nodes() }
	if err := f.roll(ctx, calm); err != nil {
		return err
	}
	if err := s.stir(ctx, scene); err != nil {
		return fmt.Errorf("stir: %w", err)
	}
	if err := f.roll(ctx, trouble); err != nil {
		return err
	}
	if err := s.heal(ctx, scene); err != nil {
		return fmt.Errorf("heal: %w", err)
	}
	return f.roll(ctx, healed)
}

// end takes everything down.
func (s *scene) end() {
	for i := len(s.undo) - 1; i >= 0; i-- {
		s.undo[i]()
	}
	if s.Cluster != nil {
		now, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = s.Stop(now) // says what was cut, and all of it was made up
	}
}

// start brings up a cluster whose first so many nodes are filmed.
func start(ctx context.Context, o testcluster.Options, edit func(*node.Config, *proxy.PoolConfig)) (*scene, error) {
	s := &scene{notes: map[string]any{}}
	s.config = func(cfg *node.Config) {
		pool := cfg.Pools[testcluster.PoolName]
		if edit != nil {
			edit(cfg, &pool)
		}
		cfg.Pools[testcluster.PoolName] = pool
	}
	o.Config = func(cfg *node.Config) { s.config(cfg) }
	c, err := testcluster.Start(ctx, o)
	if err != nil {
		return nil, err
	}
	s.Cluster = c
	s.nodes = func() map[string]string {
		all := map[string]string{}
		for i := range max(1, o.Nodes) {
			all[fmt.Sprintf("n%d", i+1)] = c.Node(i).AdminURL()
		}
		return all
	}
	return s, nil
}

// stages are all there are.
func stages() []stage {
	return []stage{slowBackend(), slowChecks(), deadBackends(), fullHouse(), manyConnections(), restlessBackends(),
		lateDrain(), lostQuorum(), twoConfigurations(), brokenFile(), loseReports(),
		{name: "numbers made up: it never happens", alerts: []string{"StarlingMovesCutStreams"}},
		{name: "numbers made up: it takes an hour", alerts: []string{"StarlingStoreGrows"}, before: 260, rest: 260},
	}
}

// draw makes a film of what cannot be staged.
func (f *film) draw(s stage) {
	f.pictures = s.before + calm + trouble + healed
	begin := s.before + calm
	series := func(at func(since int) int) (all []float64) {
		for i := range f.pictures {
			all = append(all, float64(at(max(0, i-begin))))
		}
		return all
	}
	switch s.alerts[0] {
	case "StarlingMovesCutStreams": // ten, one after the other
		f.series[`starling_move_cut_streams_total{instance="n1"}`] = series(func(since int) int { return min(since, 10) })
	case "StarlingStoreGrows": // from 200 MiB to 700, within some minutes
		f.series[`starling_store_bytes{instance="n1"}`] = series(func(since int) int { return (200 + min(since*20, 500)) << 20 })
	}
}

func slowBackend() stage {
	return stage{
		name: "one of three backends runs six times slower, under round_robin", alerts: []string{"StarlingStepTimesApart", "StarlingStepTimesFarApart", "StarlingBackendsDiverge"},
		set: func(ctx context.Context) (*scene, error) {
			s, err := start(ctx, testcluster.Options{Backends: 3, Backend: demo()}, func(_ *node.Config, p *proxy.PoolConfig) { p.Policy = "round_robin" })
			if err == nil {
				s.clients(ctx, 30, talking{prompt: 800, answer: 4})
			}
			return s, err
		},
		stir: func(_ context.Context, s *scene) error { return s.Backend(1).SetFaults(slow(6)) },
		heal: func(_ context.Context, s *scene) error { return s.Backend(1).Revive() },
	}
}

func slowChecks() stage {
	return stage{
		name: "a backend's health answers after 800 ms, where 500 are slow", alerts: []string{"StarlingChecksSlow"},
		set: func(ctx context.Context) (*scene, error) {
			return start(ctx, testcluster.Options{Backends: 2}, func(_ *node.Config, p *proxy.PoolConfig) {
				p.Health.Timeout = 5 * time.Second
				p.Health.Interval, p.Health.SlowThreshold = 100*time.Millisecond, 500*time.Millisecond // one slow check by chance in a film's ten minutes is below the rule's share
			})
		},
		stir: func(_ context.Context, s *scene) error {
			return s.Backend(0).SetFaults(slowHealth(800 * time.Millisecond))
		},
		heal: func(_ context.Context, s *scene) error { return s.Backend(0).Revive() },
	}
}

func deadBackends() stage {
	return stage{
		name: "three of four backends die", alerts: []string{"StarlingPanic"},
		set: func(ctx context.Context) (*scene, error) {
			return start(ctx, testcluster.Options{Backends: 4}, func(_ *node.Config, p *proxy.PoolConfig) {
				p.Health.Interval = 200 * time.Millisecond
				p.Health.Fall, p.Health.Rise = 2, 1
			})
		},
		stir: func(_ context.Context, s *scene) error {
			return errors.Join(s.Backend(0).Kill(), s.Backend(1).Kill(), s.Backend(2).Kill())
		},
		heal: func(_ context.Context, s *scene) error {
			return errors.Join(s.Backend(0).Revive(), s.Backend(1).Revive(), s.Backend(2).Revive())
		},
	}
}

func fullHouse() stage {
	return stage{
		name: "four streams wait where five may", alerts: []string{"StarlingQueueLong"},
		set: func(ctx context.Context) (*scene, error) {
			return start(ctx, testcluster.Options{Backends: 1}, func(_ *node.Config, p *proxy.PoolConfig) {
				p.Backend.MaxStreams, p.Queue.MaxWaiting, p.Queue.Timeout = 1, 5, time.Minute
			})
		},
		stir: func(ctx context.Context, s *scene) error {
			s.notes["clients"] = s.clients(ctx, 5, talking{prompt: 10, answer: 10_000})
			return nil
		},
		heal: func(_ context.Context, s *scene) error { s.notes["clients"].(func())(); return nil },
	}
}

func manyConnections() stage {
	return stage{
		name: "nine idle connections where ten may be open", alerts: []string{"StarlingConnectionsPileUp"},
		set: func(ctx context.Context) (*scene, error) {
			return start(ctx, testcluster.Options{Backends: 1}, func(cfg *node.Config, _ *proxy.PoolConfig) { cfg.Listeners[0].MaxConnections = 10 })
		},
		stir: func(ctx context.Context, s *scene) (err error) {
			s.notes["close"], err = s.connect(ctx, 9)
			return err
		},
		heal: func(_ context.Context, s *scene) error { s.notes["close"].(func())(); return nil },
	}
}

func restlessBackends() stage {
	return stage{
		name: "of two backends now the one and now the other is dead", alerts: []string{"StarlingSessionsMiss"},
		set: func(ctx context.Context) (*scene, error) {
			s, err := start(ctx, testcluster.Options{Backends: 2}, func(cfg *node.Config, p *proxy.PoolConfig) {
				sessions(p)
				p.Health.Enabled, p.Outlier.ConsecutiveFailures = false, 0
				p.Sticky.BindTimeout = 5 * time.Second
				cfg.Shards.Count = 2
			})
			if err != nil {
				return nil, err
			}
			if err := s.led(ctx); err != nil {
				s.end()
				return nil, err
			}
			s.clients(ctx, 10, talking{prompt: 1, answer: 1, session: true, think: 150 * time.Millisecond})
			return s, nil
		},
		stir: func(ctx context.Context, s *scene) error {
			s.notes["stop"] = s.flip(ctx, 300*time.Millisecond)
			return nil
		},
		heal: func(_ context.Context, s *scene) error {
			s.notes["stop"].(func())()
			return errors.Join(s.Backend(0).Revive(), s.Backend(1).Revive())
		},
	}
}

func lateDrain() stage {
	return stage{
		name: "a drain of 200 ms, and a stream that takes longer", alerts: []string{"StarlingDrainsTimeOut"}, rest: 250,
		set: func(ctx context.Context) (*scene, error) {
			s, err := start(ctx, testcluster.Options{Backends: 2}, func(_ *node.Config, p *proxy.PoolConfig) {
				p.Backend.DrainTimeout = 200 * time.Millisecond
			})
			if err == nil {
				s.notes["clients"] = s.clients(ctx, 4, talking{prompt: 1, answer: 10_000})
			}
			return s, err
		},
		stir: func(_ context.Context, s *scene) error { return s.Node(0).ChangeBackend("b1", "drain") },
		heal: func(_ context.Context, s *scene) error {
			s.notes["clients"].(func())()
			return s.Node(0).ChangeBackend("b1", "undrain")
		},
	}
}

func lostQuorum() stage {
	return stage{
		name: "two of three nodes die, and new sessions come to the third", alerts: []string{"StarlingShardLeaderless", "StarlingProvisionalStay"},
		set: func(ctx context.Context) (*scene, error) {
			s, err := start(ctx, testcluster.Options{Nodes: 3, Backends: 2}, func(cfg *node.Config, p *proxy.PoolConfig) {
				sessions(p)
				p.Sticky.BindTimeout = 100 * time.Millisecond
				cfg.Shards.Count = 2
			})
			if err != nil {
				return nil, err
			}
			if err := s.led(ctx); err != nil {
				s.end()
				return nil, err
			}
			return s, nil
		},
		stir: func(ctx context.Context, s *scene) error {
			s.notes["all"], s.nodes = s.nodes, func() map[string]string { return map[string]string{"n1": s.Node(0).AdminURL()} }
			s.Kill(1)
			s.Kill(2)
			s.notes["clients"] = s.clients(ctx, 4, talking{prompt: 1, answer: 1, session: true, fresh: true, think: 50 * time.Millisecond})
			return nil
		},
		heal: func(ctx context.Context, s *scene) error {
			s.notes["clients"].(func())()
			if err := errors.Join(s.Restart(ctx, 1), s.Restart(ctx, 2)); err != nil {
				return err
			}
			s.nodes = s.notes["all"].(func() map[string]string)
			if err := s.led(ctx); err != nil {
				return err
			}
			return s.settled(ctx)
		},
	}
}

func twoConfigurations() stage {
	return stage{
		name: "one of two nodes is started with another file", alerts: []string{"StarlingConfigurationsDiffer"},
		set: func(ctx context.Context) (*scene, error) {
			s, err := start(ctx, testcluster.Options{Nodes: 2, Backends: 1}, nil)
			if err == nil {
				s.nodes = func() map[string]string { return map[string]string{"n1": s.Node(0).AdminURL()} }
				s.notes["config"] = s.config
			}
			return s, err
		},
		stir: func(ctx context.Context, s *scene) error {
			s.Kill(1)
			s.config = func(cfg *node.Config) {
				pool := cfg.Pools[testcluster.PoolName]
				pool.Queue.MaxWaiting = 7
				cfg.Pools[testcluster.PoolName] = pool
			}
			return s.Restart(ctx, 1)
		},
		heal: func(ctx context.Context, s *scene) error {
			s.Kill(1)
			s.config = s.notes["config"].(func(*node.Config))
			return s.Restart(ctx, 1)
		},
	}
}

func brokenFile() stage {
	return stage{
		name: "a file that cannot be used is loaded", alerts: []string{"StarlingReloadRefused"},
		set: func(ctx context.Context) (*scene, error) { return fromFile(ctx) },
		stir: func(ctx context.Context, s *scene) error {
			if err := s.notes["write"].(func(string) error)("pools: {p: {nonsense: 1}}\n"); err != nil {
				return err
			}
			if _, err := s.notes["node"].(*node.Node).Reload(ctx); err == nil || !strings.Contains(err.Error(), "nonsense") {
				return fmt.Errorf("a broken file was answered with %v", err)
			}
			return nil
		},
		heal: func(ctx context.Context, s *scene) error {
			if err := s.notes["write"].(func(string) error)(""); err != nil {
				return err
			}
			_, err := s.notes["node"].(*node.Node).Reload(ctx)
			return err
		},
	}
}
