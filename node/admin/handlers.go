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

	MostStreamsOfAll = 1000 // where all nodes are asked
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

func (s *Server) status(c *call) error {
	whole, err := c.whole(false)
	if err != nil {
		return err
	}
	if !whole {
		return putJSON(&c.Response, s.opt.Node.Status())
	}
	all, err := s.opt.Node.StatusOfAll(s.ctx)
	if err != nil {
		return err
	}
	return putJSON(&c.Response, all)
}

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
	whole, err := c.whole(false)
	if err != nil {
		return err
	}
	list := api.Backends{}
	if whole {
		list, err = s.opt.Node.BackendsOfAll(s.ctx)
	} else {
		list = s.opt.Node.Backends()
	}
	if err != nil {
		return err
	}
	if list.Backends == nil {
		list.Backends = []api.Backend{} // an empty list is [], never null
	}
	return putJSON(&c.Response, list)
}

func (s *Server) streams(c *call) error {
	whole, err := c.whole(false)
	if err != nil {
		return err
	}
	most := maxStreams
	if whole {
		most = MostStreamsOfAll
	}
	limit, err := c.number("limit", defaultStreams, 1, most)
	if err != nil {
		return err
	}
	list := api.StreamList{}
	if whole {
		list, err = s.opt.Node.StreamsOfAll(s.ctx, limit)
	} else {
		list = s.opt.Node.Streams(s.ctx, limit)
	}
	if err != nil {
		return err
	}
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

// whole tells whether a call is about all nodes of the cluster, or only about the
// one that is asked.
func (c *call) whole(otherwise bool) (bool, error) {
	text, ok := c.query["scope"]
	switch {
	case !ok:
		return otherwise, nil
	case text == "cluster", text == "node":
		return text == "cluster", nil
	}
	return false, refuse(BadRequest, "query parameter scope=%q: write node or cluster", text)
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
