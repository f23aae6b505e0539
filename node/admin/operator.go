package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/starling-lb/starling/node/api"
)

func (s *Server) pools(c *call) error {
	whole, err := c.whole(false)
	if err != nil {
		return err
	}
	list := api.Pools{}
	if whole {
		list, err = s.opt.Node.PoolsOfAll(s.ctx)
	} else {
		list = s.opt.Node.Pools()
	}
	if err != nil {
		return err
	}
	if list.Pools == nil {
		list.Pools = []api.Pool{}
	}
	return putJSON(&c.Response, list)
}

func (s *Server) addBackend(c *call) error {
	b := api.NewBackend{Weight: 1}
	if err := c.readJSON(&b); err != nil {
		return err
	}
	if err := s.opt.Node.AddBackend(c.path["pool"], b); err != nil {
		return err
	}
	return s.done(c, "add backend", "backend", b.ID, "pool", c.path["pool"])
}

func (s *Server) removeBackend(c *call) error {
	if err := s.opt.Node.RemoveBackend(c.path["pool"], c.path["id"]); err != nil {
		return err
	}
	return s.done(c, "remove backend", "backend", c.path["id"], "pool", c.path["pool"])
}

func (s *Server) weighBackend(c *call) error {
	var want api.Weight
	if err := c.readJSON(&want); err != nil {
		return err
	}
	if err := s.opt.Node.WeighBackend(c.path["id"], want.Weight); err != nil {
		return err
	}
	return s.done(c, "weigh backend", "backend", c.path["id"], "weight", want.Weight)
}

func (s *Server) setPolicy(c *call) error {
	var want api.Policy
	if err := c.readJSON(&want); err != nil {
		return err
	}
	if err := s.opt.Node.SetPolicy(c.path["pool"], want); err != nil {
		return err
	}
	return s.done(c, "set policy", "pool", c.path["pool"], "policy", want.Policy, "second", want.Second, "share", want.Share)
}

func (s *Server) setRebalance(c *call) error {
	var want api.Rebalancing
	if err := c.readJSON(&want); err != nil {
		return err
	}
	if err := s.opt.Node.SetRebalance(c.path["pool"], want); err != nil {
		return err
	}
	return s.done(c, "set rebalance", "pool", c.path["pool"], "enabled", want.Enabled)
}

func (s *Server) moveSession(c *call) error {
	var want api.Destination
	if err := c.readJSON(&want); err != nil {
		return err
	}
	if err := s.opt.Node.MoveSession(s.ctx, c.path["pool"], c.path["key"], want.Backend); err != nil {
		return err
	}
	return s.done(c, "move session", "pool", c.path["pool"], "backend", want.Backend) // its key is nobody's business
}

func (s *Server) changeBackend(verb Verb) func(*call) error {
	return func(c *call) error {
		if err := s.opt.Node.ChangeBackend(c.path["id"], verb); err != nil {
			return err
		}
		return s.done(c, string(verb)+" backend", "backend", c.path["id"])
	}
}

// throw answers eject and admit: of all nodes, unless the call says otherwise.
func (s *Server) throw(verb Verb) func(*call) error {
	return func(c *call) error {
		whole, err := c.whole(true)
		if err != nil {
			return err
		}
		do, scope := s.opt.Node.ChangeBackend, ""
		if !whole {
			do, scope = s.opt.Node.ChangeHere, "node"
		}
		if err := do(c.path["id"], verb); err != nil {
			return err
		}
		return s.done(c, string(verb)+" backend", "backend", c.path["id"], "scope", scope)
	}
}

func (s *Server) ruleNode(verb string, do func(context.Context) error) func(*call) error {
	return func(c *call) error {
		if err := do(s.ctx); err != nil {
			return err
		}
		return s.done(c, verb+" node")
	}
}

func (s *Server) resetShard(empty bool) func(*call) error {
	return func(c *call) error {
		if err := s.opt.Node.ResetShard(s.ctx, c.path["id"], empty); err != nil {
			return err
		}
		return s.done(c, "reset shard", "shard", c.path["id"], "empty", empty)
	}
}

func (s *Server) reload(c *call) error {
	whole, err := c.whole(false)
	if err != nil {
		return err
	}
	do, scope := s.opt.Node.Reload, ""
	if whole {
		do, scope = s.opt.Node.ReloadAll, "cluster"
	}
	answer, err := do(s.ctx)
	if err != nil {
		return err
	}
	s.note(c, "reload", "scope", scope)
	return putJSON(&c.Response, answer)
}

func (s *Server) upgrade(c *call) error {
	answer, err := s.opt.Node.Upgrade(s.ctx)
	if err != nil {
		return err
	}
	s.note(c, "upgrade", "pid", answer.PID)
	return putJSON(&c.Response, answer)
}

// done answers a change that was made, and leaves a line of who made it.
func (s *Server) done(c *call, what string, about ...any) error {
	s.note(c, what, about...)
	return putJSON(&c.Response, struct{}{})
}

// note leaves a line in the log, and an event.
func (s *Server) note(c *call, what string, about ...any) {
	text := what
	for i := 0; i+1 < len(about); i += 2 {
		if about[i+1] != "" {
			text += fmt.Sprintf(", %v %v", about[i], about[i+1])
		}
	}
	s.opt.Node.Ordered(text)
	s.opt.Logger.Info("operator: "+what, append(about, "client", c.RemoteAddr().String(), "request_id", c.id)...)
}

// readJSON reads the body into v, strictly: what v does not know is an error
// that names it.
func (c *call) readJSON(v any) error {
	dec := json.NewDecoder(bytes.NewReader(c.PostBody()))
	dec.DisallowUnknownFields()
	err := dec.Decode(v)
	if err == nil {
		if _, more := dec.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("something stands after the object")
		}
	}
	if errors.Is(err, io.EOF) {
		err = errors.New("the body is empty")
	}
	if err != nil {
		return refuse(BadRequest, "%s takes a JSON object: %s", c.Path(), strings.TrimPrefix(err.Error(), "json: "))
	}
	return nil
}
