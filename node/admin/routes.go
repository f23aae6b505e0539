package admin

import (
	"errors"
	"net/url"
	"slices"
	"strings"

	"github.com/valyala/fasthttp"
)

// route is one line of the API. Of several that match, the first counts.
type route struct {
	method string // GET answers HEAD too
	path   string // {name} takes one segment that is not empty, percent-decoded
	do     func(*call) error
	who    access
	query  []string // the parameters it knows
	body   bool     // it takes one, of JSON
}

func (s *Server) table(pprof bool) []route {
	routes := []route{
		{method: "GET", path: "/healthz", do: s.healthz, who: everyone},
		{method: "GET", path: "/readyz", do: s.readyz, who: everyone},
		{method: "GET", path: "/metrics", do: s.metrics(), who: scrapers},
		{method: "GET", path: "/v1/status", do: s.status},
		{method: "GET", path: "/v1/members", do: s.members},
		{method: "GET", path: "/v1/shards", do: s.shards},
		{method: "GET", path: "/v1/keys", do: s.keys},
		{method: "POST", path: "/v1/keys/install", do: s.changeKeys("install"), body: true},
		{method: "POST", path: "/v1/keys/use", do: s.changeKeys("use"), body: true},
		{method: "POST", path: "/v1/keys/remove", do: s.changeKeys("remove"), body: true},
		{method: "GET", path: "/v1/backends", do: s.backends},
		{method: "GET", path: "/v1/streams", do: s.streams, query: []string{"limit"}},
		{method: "GET", path: "/v1/pools", do: s.pools},
		{method: "GET", path: "/v1/events", do: s.events},
		{method: "POST", path: "/v1/pools/{pool}/backends", do: s.addBackend, body: true},
		{method: "DELETE", path: "/v1/pools/{pool}/backends/{id}", do: s.removeBackend},
		{method: "POST", path: "/v1/pools/{pool}/policy", do: s.setPolicy, body: true},
		{method: "POST", path: "/v1/pools/{pool}/rebalance", do: s.setRebalance, body: true},
		{method: "GET", path: "/v1/sessions/{pool}/{key}", do: s.session},
		{method: "POST", path: "/v1/sessions/{pool}/{key}/move", do: s.moveSession, body: true},
		{method: "POST", path: "/v1/shards/{id}/reset", do: s.resetShard},
		{method: "POST", path: "/v1/reload", do: s.reload},
		{method: "POST", path: "/v1/node/drain", do: s.ruleNode("drain", s.opt.Node.DrainNode)},
		{method: "POST", path: "/v1/node/leave", do: s.ruleNode("leave", s.opt.Node.LeaveNode)},
		{method: "POST", path: "/v1/node/undrain", do: s.ruleNode("undrain", s.opt.Node.StayNode)},
		{method: "POST", path: "/v1/backends/{id}/weight", do: s.weighBackend, body: true},
	}
	for _, verb := range []Verb{Drain, Undrain, Eject, Admit, Reset} {
		routes = append(routes, route{method: "POST", path: "/v1/backends/{id}/" + string(verb), do: s.changeBackend(verb)})
	}
	if pprof {
		routes = append(routes, s.profiles()...)
	}
	return routes
}

// call is one request that is being answered. It ends with its handler.
type call struct {
	*fasthttp.RequestCtx
	id    string            // names it in the answer and in the log
	path  map[string]string // what the {name}s of its route stand for
	query map[string]string // each a parameter that its route knows
}

// serve answers a request, from its first look to its only error.
func (s *Server) serve(ctx *fasthttp.RequestCtx) {
	c := &call{RequestCtx: ctx, id: newRequestID()}
	err := s.answer(c)
	if s.ctx.Err() != nil {
		ctx.SetConnectionClose()
	}
	var known *Error
	if err != nil && !errors.As(err, &known) {
		s.opt.Logger.Error("admin request failed", "path", string(ctx.URI().PathOriginal()), "request_id", c.id, "err", err)
		known = refuse(Internal, "the node could not answer; its log has the cause under this request_id")
	}
	if known != nil {
		s.refused(ctx, known, c.id)
		return
	}
	finish(&ctx.Response, c.id)
}

func (s *Server) answer(c *call) error {
	found, err := s.find(c)
	who := operators // who may not ask must not learn what there is
	if found != nil {
		who = found.who
	}
	if refusal := s.guard.admit(&c.Request, who); refusal != nil {
		return refusal
	}
	if err != nil {
		return err
	}
	if err := c.readQuery(found); err != nil {
		return err
	}
	if len(c.PostBody()) > 0 && !found.body {
		return refuse(BadRequest, "%s %s takes no body", found.method, found.path)
	}
	return found.do(c)
}

// find returns the route of a call, or why there is none.
func (s *Server) find(c *call) (*route, error) {
	path, method := string(c.URI().PathOriginal()), string(c.Method())
	segments, err := decode(path)
	if err != nil {
		return nil, err
	}
	if method == fasthttp.MethodHead {
		method = fasthttp.MethodGet
	}
	var allowed []string
	for i := range s.routes {
		r := &s.routes[i]
		values, ok := r.match(segments)
		if ok && r.method == method {
			c.path = values
			return r, nil
		}
		if ok {
			allowed = append(allowed, r.allows()...)
		}
	}
	if allowed == nil {
		return nil, refuse(NotFound, "there is nothing at %q; docs/reference/admin.md lists what there is", path)
	}
	e := refuse(MethodNotAllowed, "%q does not take %s, only %s", path, c.Method(), strings.Join(allowed, ", "))
	e.allow = strings.Join(allowed, ", ")
	return nil, e
}

// decode splits a path before it decodes, so that a key may hold a slash.
func decode(path string) ([]string, error) {
	segments := strings.Split(path, "/")
	for i, raw := range segments {
		text, err := url.PathUnescape(raw)
		if err != nil {
			return nil, refuse(BadRequest, "path %q: %v; write a literal %% as %%25", path, err)
		}
		segments[i] = text
	}
	return segments, nil
}

func (r *route) match(segments []string) (map[string]string, bool) {
	pattern := strings.Split(r.path, "/")
	if len(pattern) != len(segments) {
		return nil, false
	}
	values := map[string]string{}
	for i, want := range pattern {
		name, variable := strings.CutPrefix(want, "{")
		switch {
		case variable && segments[i] != "":
			values[strings.TrimSuffix(name, "}")] = segments[i]
		case variable || want != segments[i]:
			return nil, false
		}
	}
	return values, true
}

func (r *route) allows() []string {
	if r.method == fasthttp.MethodGet {
		return []string{fasthttp.MethodGet, fasthttp.MethodHead}
	}
	return []string{r.method}
}

func (c *call) readQuery(r *route) error {
	c.query = map[string]string{}
	for key, value := range c.QueryArgs().All() {
		name := string(key)
		switch _, twice := c.query[name]; {
		case !slices.Contains(r.query, name) && len(r.query) == 0:
			return refuse(BadRequest, "query parameter %q is not known: %s takes none", name, r.path)
		case !slices.Contains(r.query, name):
			return refuse(BadRequest, "query parameter %q is not known: %s takes %s", name, r.path, strings.Join(r.query, ", "))
		case twice:
			return refuse(BadRequest, "query parameter %q is there twice", name)
		}
		c.query[name] = string(value)
	}
	return nil
}
