package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"time"

	"github.com/starling-lb/starling/node/api"
	"github.com/starling-lb/starling/node/client"
	"github.com/starling-lb/starling/testcluster"
	"github.com/starling-lb/starling/testcluster/llm"
)

// What is done to nodes and backends themselves.

// each does something to each of a step's nodes.
func each(ctx context.Context, r *run, s Step, breaks bool, do func(*member) error) ([]*member, done, error) {
	nodes, err := r.nodes(ctx, s.Target)
	if err != nil {
		return nil, done{}, err
	}
	d := done{target: names(nodes)}
	if breaks {
		d.breaks = names(nodes)
		r.breaks(s.Fault, d.breaks...)
	}
	for _, m := range nodes {
		err = errors.Join(err, do(m))
	}
	return nodes, d, err
}

// revive starts nodes again.
func (r *run) revive(nodes []*member) func(context.Context) error {
	return func(ctx context.Context) error {
		var err error
		for _, m := range nodes {
			err = errors.Join(err, r.rig.start(ctx, m))
		}
		return err
	}
}

func kill(ctx context.Context, r *run, s Step) (done, error) {
	nodes, d, err := each(ctx, r, s, true, func(m *member) error { r.rig.kill(m); return nil })
	if d.detail = "killed"; s.When != "now" {
		d.detail += " at a " + s.When
	}
	d.undo = r.revive(nodes)
	return d, err
}

func freeze(ctx context.Context, r *run, s Step) (done, error) {
	still := func(on bool) func(*member) error {
		return func(m *member) error {
			if on { // not what is just begun, ended or handed over
				m.turn.Lock()
				defer m.turn.Unlock()
			}
			if b := r.rig.running(m); b != nil {
				return b.freeze(on)
			}
			return nil
		}
	}
	nodes, d, err := each(ctx, r, s, true, still(true))
	d.detail = fmt.Sprintf("stands still for %v", s.For.Round(time.Millisecond))
	d.undo = func(context.Context) (err error) {
		for _, m := range nodes {
			err = errors.Join(err, still(false)(m))
		}
		return err
	}
	return d, err
}

// tell gives a node's process a command, where it runs.
func (r *run) tell(m *member, command string) error {
	if b := r.rig.running(m); b != nil {
		return b.tell(command)
	}
	return nil
}

func badDisk(ctx context.Context, r *run, s Step) (done, error) {
	command := "disk " + s.How
	if s.How == "slow" {
		command += " " + max(s.By, time.Millisecond).String()
	}
	nodes, d, err := each(ctx, r, s, false, func(m *member) error { return r.tell(m, command) })
	d.detail = "its " + command
	d.undo = func(ctx context.Context) (err error) {
		for _, m := range nodes {
			if err = errors.Join(err, r.tell(m, "disk mend")); s.How == "full" || s.How == "fail" {
				err = errors.Join(err, r.again(ctx, m)) // what has failed stays out until then
			}
		}
		return err
	}
	return d, err
}

func jump(ctx context.Context, r *run, s Step) (done, error) {
	_, d, err := each(ctx, r, s, false, func(m *member) error { return r.tell(m, "clock "+s.By.String()) })
	d.detail = fmt.Sprintf("its clock jumps by %v", s.By)
	return d, err
}

// move has nodes come back at other addresses.
func move(ctx context.Context, r *run, s Step) (done, error) {
	nodes, d, err := each(ctx, r, s, false, func(m *member) error { return r.rig.retire(ctx, m) })
	d.detail = "drained, and comes back at other addresses"
	d.undo = func(ctx context.Context) (err error) {
		for _, m := range nodes {
			if err = errors.Join(err, r.rig.settleAnew(m)); err == nil {
				err = r.rig.start(ctx, m)
			}
		}
		return err
	}
	return d, err
}

// settleAnew gives a node that is down other addresses; its data goes along.
func (r *rig) settleAnew(m *member) error {
	m.turn.Lock()
	defer m.turn.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	m.moves++
	return r.settle(m)
}

func wipe(ctx context.Context, r *run, s Step) (done, error) {
	nodes, d, err := each(ctx, r, s, true, func(m *member) error {
		r.rig.kill(m)
		r.rig.setNew(m, true)
		return os.RemoveAll(r.rig.dataDir(m))
	})
	d.detail = "killed, and its data is gone"
	d.undo = func(ctx context.Context) error {
		err := r.revive(nodes)(ctx)
		for _, m := range nodes {
			err = errors.Join(err, r.enter(ctx, m))
		}
		return err
	}
	return d, err
}

const enterTime = 30 * time.Second // for a new node to be ready

// enter has clients come in at a new node once it is ready, as a balancer would.
func (r *run) enter(ctx context.Context, m *member) error {
	lacks := r.await(ctx, enterTime, func(ctx context.Context) string {
		var s api.Status
		if err := r.get(ctx, m, &s, "status"); err != nil {
			return err.Error()
		}
		return s.NotReady
	})
	if lacks != "" {
		return fmt.Errorf("%s is not ready after %v: %s", m.name, enterTime, lacks)
	}
	r.rig.setNew(m, false)
	return nil
}

// join adds nodes, all at once.
func join(ctx context.Context, r *run, s Step) (done, error) {
	d := done{detail: fmt.Sprintf("%d more nodes at once", s.Count)}
	var fresh []*member
	for range s.Count {
		m, err := r.rig.addMember()
		if err != nil {
			return d, err
		}
		r.rig.setNew(m, true)
		fresh = append(fresh, m)
	}
	d.target = names(fresh)
	errs := make(chan error, len(fresh))
	for _, m := range fresh {
		go func() {
			ctx := context.WithoutCancel(ctx)
			err := r.rig.start(ctx, m)
			if err == nil {
				err = r.enter(ctx, m)
			}
			errs <- err
		}()
	}
	var err error
	for range fresh {
		err = errors.Join(err, <-errs)
	}
	return d, err
}

const leaveTime = 2 * time.Minute

// leave has nodes leave for good, all at once.
func leave(ctx context.Context, r *run, s Step) (done, error) {
	live := r.rig.live()
	if len(live) <= s.Count {
		return done{}, fmt.Errorf("%d of %d nodes cannot leave", s.Count, len(live))
	}
	going := live[len(live)-s.Count:]
	d := done{target: names(going), detail: "leave for good, all at once"}
	var err error
	for _, m := range going {
		err = errors.Join(err, r.rig.client(m).Post(ctx, nil, "node", "leave"))
	}
	if err != nil {
		return d, err
	}
	limit := time.After(leaveTime)
	for _, m := range going {
		b := r.rig.running(m)
		if b == nil {
			continue
		}
		select {
		case <-b.died:
		case <-limit:
			return d, fmt.Errorf("%s has not left after %v", m.name, leaveTime)
		}
	}
	r.rig.mu.Lock()
	defer r.rig.mu.Unlock()
	for _, m := range going {
		m.gone = true
	}
	return d, nil
}

// faultsOf are the switches of a demo backend for a way of being bad.
func faultsOf(s Step) llm.Faults {
	switch s.How {
	case "dead":
		return llm.Faults{Refuse: true, CloseConns: true}
	case "hung":
		return llm.Faults{Hang: true}
	case "slow":
		return llm.Faults{Slow: max(s.Factor, 2)}
	case "flap":
		return llm.Faults{Flap: max(s.By, 500*time.Millisecond), CloseConns: true}
	}
	return llm.Faults{BreakAfter: 5}
}

func badBackend(_ context.Context, r *run, s Step) (done, error) {
	some, err := r.servers(s.Target)
	d := done{detail: "it is " + s.How}
	for _, b := range some {
		d.target = append(d.target, b.ID)
	}
	if s.How != "slow" {
		d.breaks = d.target
		r.breaks(s.Fault, d.breaks...)
	}
	for _, b := range some {
		err = errors.Join(err, b.SetFaults(faultsOf(s)))
	}
	d.undo = func(context.Context) (err error) {
		for _, b := range some {
			err = errors.Join(err, b.Revive())
		}
		return err
	}
	return d, err
}

// servers are the backends that a step means.
func (r *run) servers(target string) ([]*testcluster.Backend, error) {
	all := r.rig.servers()
	switch target {
	case "all":
		return all, nil
	case "any":
		return all[r.chance(len(all)):][:1], nil
	}
	for i, b := range all {
		if b.ID == target {
			return all[i : i+1], nil
		}
	}
	return nil, fmt.Errorf("there is no backend %q", target)
}

// addBackends starts backends and has an operator add them.
func addBackends(ctx context.Context, r *run, s Step) (done, error) {
	d := done{detail: fmt.Sprintf("%d more backends are added", s.Count)}
	for range s.Count {
		b, err := r.rig.addBackend(ctx)
		if err != nil {
			return d, err
		}
		d.target = append(d.target, b.ID)
		entry := api.NewBackend{ID: b.ID, URL: b.URL(), Weight: 1, MaxStreams: r.scenario.Streams}
		err = r.insist(ctx, func(ctx context.Context, at *client.Client) error {
			err := at.Post(ctx, entry, "pools", testcluster.PoolName, "backends")
			if isRefused(err, http.StatusConflict) {
				return nil // an earlier try was heard after all
			}
			return err
		})
		if err != nil {
			return d, fmt.Errorf("add %s: %w", b.ID, err)
		}
	}
	return d, nil
}

func busier(_ context.Context, r *run, s Step) (done, error) {
	r.traffic.Scale(s.Factor)
	d := done{detail: fmt.Sprintf("%.1f times as much traffic", s.Factor)}
	if s.How == "retries" {
		r.traffic.Retries(s.Count)
		d.detail += fmt.Sprintf(", and clients try %d times more", s.Count)
	}
	d.undo = func(context.Context) error {
		r.traffic.Scale(1)
		r.traffic.Retries(r.scenario.Traffic.Retries)
		return nil
	}
	return d, nil
}

func drain(ctx context.Context, r *run, s Step) (done, error) {
	some, err := r.servers(s.Target)
	if err != nil {
		return done{}, err
	}
	b := some[0]
	verb := func(ctx context.Context, verb string) error {
		return r.insist(ctx, func(ctx context.Context, at *client.Client) error { return at.Post(ctx, nil, "backends", b.ID, verb) })
	}
	d := done{target: []string{b.ID}, detail: "an operator drains it", undo: func(ctx context.Context) error { return verb(ctx, "undrain") }}
	return d, verb(ctx, "drain")
}

const insistTime = 20 * time.Second // for the cluster to take an operator's word

// insist does what an operator does, at one node or another, until it is done: while
// a fault lasts there may be nobody to agree to it.
func (r *run) insist(ctx context.Context, do func(context.Context, *client.Client) error) error {
	ctx, cancel := context.WithTimeout(ctx, insistTime)
	defer cancel()
	for {
		at, err := r.rig.ask(r.fork())
		if err == nil {
			err = do(ctx, r.rig.client(at))
		}
		if err == nil || !pause(ctx, 500*time.Millisecond) {
			return err
		}
	}
}

// moveOne asks for one move; whether it is made is not asked.
func (r *run) moveOne(ctx context.Context, dice *rand.Rand) {
	at, err := r.rig.ask(dice)
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	all := r.rig.servers()
	to := all[dice.IntN(len(all))].ID
	session := fmt.Sprintf("regular-%d-%d", r.o.Seed, dice.IntN(r.scenario.Traffic.Sessions))
	_ = r.rig.client(at).Post(ctx, api.Destination{Backend: to}, "sessions", testcluster.PoolName, session, "move")
}
