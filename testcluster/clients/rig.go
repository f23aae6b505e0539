package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/starling-lb/starling/node"
	"github.com/starling-lb/starling/node/api"
	"github.com/starling-lb/starling/proxy"
	"github.com/starling-lb/starling/proxy/backend"
	"github.com/starling-lb/starling/testcluster"
	"github.com/starling-lb/starling/testcluster/llm"
)

// The pools beside that of the demo backends, each for the paths below its name
// or, of requests that the openai client shapes, for a header X-Pool.
const (
	socketsPool = "sockets" // WebSockets that echo
	eventsPool  = "events"  // event streams that break off
	filesPool   = "files"   // uploads and downloads
	fullPool    = "full"    // one demo backend that is allowed one stream
	nonePool    = "none"    // no backend
)

// rig is a starling and all that is behind it.
type rig struct {
	cluster *testcluster.Cluster
	full    *llm.Server
	origins []*origin
}

func start(ctx context.Context) (*rig, error) {
	r := &rig{}
	err := r.startAll(ctx)
	if err != nil {
		return nil, errors.Join(err, r.stop())
	}
	return r, nil
}

func (r *rig) startAll(ctx context.Context) error {
	for name, h := range map[string]http.Handler{socketsPool: &sockets{}, eventsPool: http.HandlerFunc(events), filesPool: http.HandlerFunc(files)} {
		o, err := newOrigin(ctx, name, h)
		if err != nil {
			return err
		}
		r.origins = append(r.origins, o)
	}
	full, err := llm.New(llm.Options{ID: "full1", Speed: 4})
	if err != nil {
		return err
	}
	if err := full.Start(ctx); err != nil {
		return err
	}
	r.full = full
	r.cluster, err = testcluster.Start(ctx, testcluster.Options{Backends: 2, Backend: llm.Options{Speed: 4}, Config: r.configure})
	return err
}

// configure adds the pools and their routes.
func (r *rig) configure(cfg *node.Config) {
	routes := cfg.Listeners[0].Routes
	add := func(name, url string, edit func(*proxy.PoolConfig, *proxy.RouteConfig)) {
		pool, route := proxy.DefaultPool(), proxy.DefaultRoute()
		route.Pool = name
		if url != "" {
			b := backend.DefaultConfig()
			b.ID, b.URL = name+"-1", url
			pool.Backends = []backend.Config{b}
		}
		edit(&pool, &route)
		cfg.Pools[name] = pool
		routes = append([]proxy.RouteConfig{route}, routes...)
	}
	for _, o := range r.origins {
		add(o.name, o.url(), func(p *proxy.PoolConfig, route *proxy.RouteConfig) {
			route.PathPrefix = "/" + o.name
			p.Outlier.ConsecutiveFailures, p.Health.Enabled, p.Backend.Engine = 0, false, "none" // it breaks off on purpose
		})
	}
	named := func(_ *proxy.PoolConfig, route *proxy.RouteConfig) {
		route.Headers = map[string]string{"X-Pool": route.Pool}
	}
	add(nonePool, "", named)
	add(fullPool, r.full.URL(), func(p *proxy.PoolConfig, route *proxy.RouteConfig) {
		named(p, route)
		p.Backend.MaxStreams, p.Queue.MaxWaiting, p.Outlier.ConsecutiveFailures = 1, 0, 0
	})
	cfg.Listeners[0].Routes = routes
}

// env is what the scripts are told.
func (r *rig) env() []string {
	controls, err := json.Marshal([]string{r.cluster.Backend(0).ControlURL(), r.cluster.Backend(1).ControlURL()})
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return []string{
		"STARLING_URL=" + r.cluster.Node(0).URL(), "CONTROL_URLS=" + string(controls), "FULL_CONTROL_URL=" + r.full.ControlURL(),
	}
}

// atRest checks that all that the clients left behind is over.
func (r *rig) atRest(ctx context.Context, t *table) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	t.began = time.Now()
	for {
		n, err := r.inFlight(ctx)
		switch {
		case err != nil:
			return err
		case n == 0:
			t.add("starling", "no stream is left when all clients have ended", "")
			return nil
		case time.Since(t.began) > 2*time.Second:
			t.add("starling", "no stream is left when all clients have ended", fmt.Sprintf("%d are in flight", n))
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (r *rig) inFlight(ctx context.Context) (n int64, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.cluster.Node(0).AdminURL()+"/v1/backends", nil)
	if err != nil {
		return 0, err
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return 0, fmt.Errorf("ask the admin API: %w", err)
	}
	defer func() { _ = resp.Body.Close() }() // read to its end
	var list api.Backends
	if err := json.NewDecoder(resp.Body).Decode(&list); err != nil {
		return 0, fmt.Errorf("ask the admin API: %w", err)
	}
	for _, b := range list.Backends {
		n += b.InFlight.Local
	}
	return n, nil
}

// drain stops starling, with next to no time for what still runs.
func (r *rig) drain() {
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	_ = r.cluster.Node(0).Stop(ctx) // stop says it again
}

func (r *rig) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	var errs []error
	if r.cluster != nil {
		errs = append(errs, r.cluster.Stop(ctx))
	}
	if r.full != nil {
		errs = append(errs, r.full.Stop(ctx))
	}
	for _, o := range r.origins {
		errs = append(errs, o.stop())
	}
	return errors.Join(errs...)
}
