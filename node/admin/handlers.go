package admin

import (
	"fmt"
	"strconv"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/valyala/fasthttp/fasthttpadaptor"

	"github.com/starling-lb/starling/node/api"
)

// How many streams an answer lists.
const (
	defaultStreams = 100
	maxStreams     = 10_000
)

func (s *Server) healthz(c *call) error {
	c.SetBodyString("ok\n")
	return nil
}

func (s *Server) readyz(c *call) error {
	if err := s.opt.Node.Ready(); err != nil {
		return refuse(NotReady, "%v", err)
	}
	c.SetBodyString("ready\n")
	return nil
}

func (s *Server) status(c *call) error { return putJSON(&c.Response, s.opt.Node.Status()) }

func (s *Server) members(c *call) error { return putJSON(&c.Response, s.opt.Node.Members()) }

func (s *Server) shards(c *call) error { return putJSON(&c.Response, s.opt.Node.Shards(s.ctx)) }

func (s *Server) config(c *call) error {
	config, err := s.opt.Node.Configuration()
	if err != nil {
		return err
	}
	return putJSON(&c.Response, config)
}

func (s *Server) session(c *call) error {
	one, err := s.opt.Node.Session(s.ctx, c.path["pool"], c.path["key"])
	if err != nil {
		return err
	}
	return putJSON(&c.Response, one)
}

func (s *Server) backends(c *call) error {
	list := s.opt.Node.Backends()
	if list.Backends == nil {
		list.Backends = []api.Backend{} // an empty list is [], never null
	}
	return putJSON(&c.Response, list)
}

func (s *Server) streams(c *call) error {
	limit, err := c.number("limit", defaultStreams, 1, maxStreams)
	if err != nil {
		return err
	}
	list := s.opt.Node.Streams(limit)
	if list.Streams == nil {
		list.Streams = []api.Stream{}
	}
	return putJSON(&c.Response, list)
}

// metrics serves what could be gathered when a collector fails, which is then
// an error in the log.
func (s *Server) metrics() func(*call) error {
	handler := fasthttpadaptor.NewFastHTTPHandler(promhttp.HandlerFor(s.opt.Gatherer, promhttp.HandlerOpts{
		ErrorLog:          bridge{s.opt.Logger},
		ErrorHandling:     promhttp.ContinueOnError,
		EnableOpenMetrics: true,
	}))
	return func(c *call) error {
		handler(c.RequestCtx)
		if code := c.Response.StatusCode(); code != 200 {
			return fmt.Errorf("metrics: status %d: %s", code, c.Response.Body())
		}
		return nil
	}
}

// number reads a query parameter from least to most.
func (c *call) number(name string, otherwise, least, most int) (int, error) {
	text, ok := c.query[name]
	if !ok {
		return otherwise, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < least || n > most {
		return 0, refuse(BadRequest, "query parameter %s=%q: write a number from %d to %d", name, text, least, most)
	}
	return n, nil
}
