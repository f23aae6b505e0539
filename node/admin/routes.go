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

	takes any    // a zero body; nil: it takes none
	gives any    // a zero answer, or a text; nil: {}
	mime  string // of the answer; "": JSON
	says  string // what it is for, in a line
	codes []Code // its refusals besides the usual ones
}

// call is one request that is being answered. It ends with its handler.
type call struct {
	*fasthttp.RequestCtx
	id    string            // names it in the answer and in the log
	route string            // the path of its route, as it is written there: a real one may hold a session's key
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
		s.opt.Logger.Error("admin request failed", "route", c.route, "request_id", c.id, "err", err)
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
		who, c.route = found.who, found.path
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
	if len(c.PostBody()) > 0 && found.takes == nil {
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
