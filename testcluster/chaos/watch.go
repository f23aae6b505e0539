package chaos

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/starling-lb/starling/node/api"
	"github.com/starling-lb/starling/node/client"
	"github.com/starling-lb/starling/proxy/backend"
	"github.com/starling-lb/starling/testcluster/chaos/history"
)

const (
	lookEvery   = 100 * time.Millisecond // while something is awaited
	sampleEvery = time.Second
	costlyEvery = 5 // samples; only then a node's metrics are read
	askTime     = 5 * time.Second
	glanceTime  = 2 * time.Second // of a sample
	figureEvery = 5               // samples
)

// await looks until nothing lacks, or a time has passed; then it says what lacked
// last.
func (r *run) await(ctx context.Context, limit time.Duration, look func(context.Context) string) (lacks string) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		if now := look(ctx); ctx.Err() == nil {
			lacks = now
		}
		if lacks == "" && ctx.Err() == nil {
			return ""
		}
		if !pause(ctx, lookEvery) {
			if lacks == "" {
				lacks = "nobody could say"
			}
			return lacks
		}
	}
}

// get asks a node.
func (r *run) get(ctx context.Context, m *member, v any, way ...string) error {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	return r.rig.client(m).Get(ctx, v, way...)
}

// wants are the things that must come to be as they should after the last fault.
func (r *run) wants() map[string]func(context.Context) string {
	all := func(look func(context.Context, *member) string) func(context.Context) string {
		return func(ctx context.Context) string {
			for _, m := range r.rig.live() {
				if lacks := look(ctx, m); lacks != "" {
					return m.name + ": " + lacks
				}
			}
			return ""
		}
	}
	return map[string]func(context.Context) string{
		"members": all(r.members), "leaders": all(r.led), "map": all(r.mapped), "backends": all(r.well), "bindings": all(once(r.agreed)),
	}
}

// once is for what lacks now and then for a moment while there is traffic: on a busy
// machine new sessions are guessed all the time, now at this node and now at that one. A
// node at which nothing lacked once is well.
func once(look func(context.Context, *member) string) func(context.Context, *member) string {
	well := map[*member]bool{}
	return func(ctx context.Context, m *member) string {
		if well[m] {
			return ""
		}
		lacks := look(ctx, m)
		well[m] = lacks == ""
		return lacks
	}
}

// whole says what lacks to a cluster in which all is well.
func (r *run) whole(ctx context.Context) string {
	for _, look := range r.wants() {
		if lacks := look(ctx); lacks != "" {
			return lacks
		}
	}
	return ""
}

// ready says what one node lacks to serve as before.
func (r *run) ready(ctx context.Context, m *member) string {
	for _, look := range []func(context.Context, *member) string{r.members, r.led, r.mapped} {
		if lacks := look(ctx, m); lacks != "" {
			return lacks
		}
	}
	return ""
}

func (r *run) members(ctx context.Context, m *member) string {
	var list api.Members
	if err := r.get(ctx, m, &list, "members"); err != nil {
		return err.Error()
	}
	alive := map[string]bool{}
	for _, o := range list.Members {
		if o.State == backend.MemberAlive {
			alive[o.Name] = true
		}
	}
	for _, o := range r.rig.up() {
		if !alive[o.name] {
			return "does not see " + o.name
		}
	}
	return ""
}

func (r *run) led(ctx context.Context, m *member) string {
	var s api.Status
	switch err := r.get(ctx, m, &s, "status"); {
	case err != nil:
		return err.Error()
	case s.Shards.Count == 0:
		return "has no cluster"
	case !s.Cluster.MetaQuorum:
		return "hears nothing of meta"
	case s.Shards.WithoutLeader > 0:
		return fmt.Sprintf("%d shards without a leader", s.Shards.WithoutLeader)
	}
	return ""
}

// mapped says what lacks to shards that all have their replicas, and whose replicas
// all have the log.
func (r *run) mapped(ctx context.Context, m *member) string {
	var list api.ShardList
	if err := r.get(ctx, m, &list, "shards"); err != nil {
		return err.Error()
	}
	up := map[string]bool{}
	for _, o := range r.rig.live() {
		up[o.name] = r.rig.running(o) != nil
	}
	want := min(3, len(up))
	if want == 2 {
		want = 1 // two could not go on without each other
	}
	if len(list.Shards) != shards+1 {
		return fmt.Sprintf("%d shards", len(list.Shards))
	}
	for _, s := range list.Shards {
		voters := 0
		for _, rep := range s.Replicas {
			if rep.Role == api.LeaderRole || rep.Role == api.VoterRole {
				voters++
			}
			if !up[rep.Node] || rep.Lag > 0 || rep.Role == api.WantedRole {
				return fmt.Sprintf("shard %d: replica at %s, %s, lacks %d", s.ID, rep.Node, rep.Role, rep.Lag)
			}
		}
		if s.Leader == "" || voters < want || s.Step != nil {
			return fmt.Sprintf("shard %d: led by %q, %d voters, step %v", s.ID, s.Leader, voters, s.Step)
		}
	}
	return ""
}

func (r *run) well(ctx context.Context, m *member) string {
	var list api.Backends
	if err := r.get(ctx, m, &list, "backends"); err != nil {
		return err.Error()
	}
	usable := 0
	for _, b := range list.Backends {
		if b.State != backend.Active {
			return fmt.Sprintf("%s is %s: %s", b.ID, b.State, b.Reason)
		}
		usable++
	}
	if usable != len(r.rig.servers()) {
		return fmt.Sprintf("knows %d backends", usable)
	}
	return ""
}

// agreed says what a node guessed and nobody has agreed on.
func (r *run) agreed(ctx context.Context, m *member) string {
	text, err := r.metrics(ctx, m)
	if err != nil {
		return err.Error()
	}
	if n := value(text, "starling_provisional_bindings"); n > 0 {
		return fmt.Sprintf("%v sessions live where a node guessed", n)
	}
	return ""
}

// counters says who still counts something, or has processes of before that carry on.
func (r *run) counters(ctx context.Context) string {
	for _, m := range r.rig.live() {
		var s api.Status
		var list api.Backends
		if err := errors.Join(r.get(ctx, m, &s, "status"), r.get(ctx, m, &list, "backends")); err != nil {
			return m.name + ": " + err.Error()
		}
		if s.Streams.InFlight != 0 || s.Streams.Waiting != 0 {
			return fmt.Sprintf("%s counts %d streams, and %d that wait", m.name, s.Streams.InFlight, s.Streams.Waiting)
		}
		if n := len(s.Elders); n > 0 {
			return fmt.Sprintf("of %s %d processes of before have not ended, the first is %d", m.name, n, s.Elders[0].PID)
		}
		for _, b := range list.Backends {
			if n := b.InFlight; n.Local != 0 || n.Cluster != 0 || n.Waiting != 0 {
				return fmt.Sprintf("%s counts %d, %d of all, and %d that wait at %s", m.name, n.Local, n.Cluster, n.Waiting, b.ID)
			}
		}
	}
	return ""
}

// sampleLoop notes what nodes say of themselves.
func (r *run) sampleLoop(ctx context.Context) {
	for i := 0; ; i++ {
		var all sync.WaitGroup
		for _, m := range r.rig.live() {
			all.Go(func() {
				s := r.sample(ctx, m, i%costlyEvery == 0)
				r.mu.Lock()
				defer r.mu.Unlock()
				r.history.Samples = append(r.history.Samples, s)
			})
		}
		all.Wait()
		if i%figureEvery == 0 {
			p := r.traffic.Progress()
			r.screen.say("%d of %d nodes up; turns: %d run, %d whole, %d broken, %d refused, %d not let in", len(r.rig.up()), len(r.rig.live()), p.Open, p.Whole, p.Broken, p.Refused, p.Unreachable)
		}
		if !pause(ctx, sampleEvery) {
			return
		}
	}
}

func (r *run) sample(ctx context.Context, m *member, costly bool) history.Sample {
	out := history.Sample{At: time.Now(), Node: m.name}
	if r.rig.running(m) == nil {
		return out
	}
	ctx, cancel := context.WithTimeout(ctx, glanceTime)
	defer cancel()
	var s api.Status
	var list api.Backends
	if errors.Join(r.get(ctx, m, &s, "status"), r.get(ctx, m, &list, "backends")) != nil {
		return out
	}
	out.Up, out.InFlight, out.Waiting, out.Alive, out.Led, out.NoLeader = true, s.Streams.InFlight, s.Streams.Waiting, s.Cluster.Alive, s.Shards.Led, s.Shards.WithoutLeader
	for _, b := range list.Backends {
		if b.State == backend.Unhealthy {
			out.Unhealthy = append(out.Unhealthy, b.ID)
		}
	}
	if costly {
		text, _ := r.metrics(ctx, m) // without them there is no more to say
		out.Routines, out.Files, out.Memory = int(value(text, "go_goroutines")), int(value(text, "process_open_fds")), int64(value(text, "process_resident_memory_bytes"))
		out.Disk = size(r.rig.dataDir(m))
	}
	return out
}

// value is that of a metric without labels; 0: it is not there.
func value(text, name string) float64 {
	in := bufio.NewScanner(strings.NewReader(text))
	for in.Scan() {
		if rest, ok := strings.CutPrefix(in.Text(), name+" "); ok {
			v, _ := strconv.ParseFloat(rest, 64)
			return v
		}
	}
	return 0
}

func (r *run) metrics(ctx context.Context, m *member) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.rig.home(m).admin+"/metrics", nil)
	if err != nil {
		return "", err
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, 16<<20))
	return string(data), err
}

func isRefused(err error, status int) bool {
	var refused *client.RefusedError
	return errors.As(err, &refused) && refused.Status == status
}
