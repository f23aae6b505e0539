package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/starling-lb/starling/testcluster/chaos/history"
)

// How one process of a node follows another, and how none may.

// again has a node drain, end and start, which is on record by itself.
func (r *run) again(ctx context.Context, m *member) error {
	s := Step{Fault: history.Restart}
	id := r.begin(s)
	d := done{target: []string{m.name}, detail: "drained and started again"}
	r.note(id, s, d, nil)
	defer r.over(id, s, d)
	if err := r.rig.retire(ctx, m); err != nil {
		return err
	}
	if err := r.rig.start(ctx, m); err != nil {
		return err
	}
	if lacks := r.await(ctx, healTime, func(ctx context.Context) string { return r.ready(ctx, m) }); lacks != "" {
		return fmt.Errorf("%s started again: %s", m.name, lacks)
	}
	return nil
}

// restart has nodes start again, one after the other.
func restart(ctx context.Context, r *run, s Step) (done, error) {
	ctx = context.WithoutCancel(ctx) // a roll that has begun goes to its end
	_, d, err := each(ctx, r, s, false, func(m *member) error { return r.again(ctx, m) })
	d.detail = "drained and started again, one after the other"
	return d, err
}

func upgrade(ctx context.Context, r *run, s Step) (done, error) {
	ctx = context.WithoutCancel(ctx)
	old := false
	_, d, err := each(ctx, r, s, false, func(m *member) error {
		old = r.rig.renew(m) || old
		return r.again(ctx, m)
	})
	if d.detail = "from an older program to this one, one after the other"; !old {
		d.detail = "from this program to this one, for want of an older"
	}
	return d, err
}

// handOver has another process become each node, under its streams. It is one roll at a
// time, as an operator would have it: where a machine is busy two steps would meet.
func handOver(ctx context.Context, r *run, s Step) (done, error) {
	ctx = context.WithoutCancel(ctx) // a roll that has begun goes to its end
	r.rolling.Lock()
	defer r.rolling.Unlock()
	nodes, err := r.nodes(ctx, s.Target)
	if err != nil {
		return done{}, err
	}
	d := done{target: names(nodes), detail: "another process becomes each of them, one after the other"}
	for _, m := range nodes {
		words, failed := r.succeed(ctx, m, len(nodes) > 1)
		if err = errors.Join(err, failed); len(nodes) == 1 {
			d.detail = words
		}
	}
	return d, err
}

// succeed has another process become one node, which is on record by itself where it
// is one of several.
func (r *run) succeed(ctx context.Context, m *member, noted bool) (words string, err error) {
	s := Step{Fault: history.HandOver}
	if noted {
		id := r.begin(s)
		defer func() {
			d := done{target: []string{m.name}, detail: words}
			r.note(id, s, d, err)
			r.over(id, s, d)
		}()
	}
	if words, err = r.rig.handOver(ctx, m); err != nil {
		return "", err
	}
	if lacks := r.await(ctx, healTime, func(ctx context.Context) string { return r.ready(ctx, m) }); lacks != "" {
		return words, fmt.Errorf("%s handed over: %s", m.name, lacks)
	}
	return words, nil
}

// twice starts a second process with the data of nodes that run; each is to refuse.
func twice(ctx context.Context, r *run, s Step) (done, error) {
	d := done{}
	_, seen, err := each(ctx, r, s, false, func(m *member) error {
		m.turn.Lock() // so that the node runs all the while
		defer m.turn.Unlock()
		if r.rig.running(m) == nil {
			return fmt.Errorf("%s does not run", m.name)
		}
		served, words, err := r.rig.twin(m)
		if err != nil {
			return fmt.Errorf("second process of %s: %w", m.name, err)
		}
		d.detail = "a second process with its data ended: " + words
		if served {
			d.detail = "a second process with its data went on"
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.history.Twins = append(r.history.Twins, history.Twin{At: time.Now(), Node: m.name, Served: served, Words: words})
		return nil
	})
	d.target = seen.target
	return d, err
}

// handOver has another process, of this program, become a node that runs.
func (r *rig) handOver(ctx context.Context, m *member) (words string, err error) {
	m.turn.Lock()
	defer m.turn.Unlock()
	b := r.running(m)
	if b == nil {
		return "", fmt.Errorf("%s does not run", m.name)
	}
	next, words, err := b.handOver(ctx)
	if err != nil {
		return "", fmt.Errorf("upgrade %s: %w", m.name, err)
	}
	if m.program != nil {
		words += "; the one before ran an older program"
	}
	m.program = nil
	r.mu.Lock()
	defer r.mu.Unlock()
	m.body = next
	return words, nil
}

// renew has a node begin with this program the next time, and tells whether it began
// with an older one.
func (r *rig) renew(m *member) (old bool) {
	m.turn.Lock()
	defer m.turn.Unlock()
	old, m.program = m.program != nil, nil
	return old
}

const twinHome = 5 // the home of a node that no move brings it to

// twin has a second process try to be a node that runs, at other addresses.
func (r *rig) twin(m *member) (served bool, words string, err error) {
	t := &member{name: m.name, number: m.number, logs: m.logs}
	if t.at, err = r.ground.places(m.number + 40*twinHome); err != nil {
		return false, "", err
	}
	data, err := json.Marshal(r.config(t))
	if err != nil {
		return false, "", err
	}
	t.file = filepath.Join(r.dir, m.name+".twin.yaml")
	if err := os.WriteFile(t.file, data, 0o600); err != nil {
		return false, "", err
	}
	return r.ground.twin(t)
}
