package admin

import (
	"context"

	"github.com/starling-lb/starling/node/api"
)

// Keeper has the keys of gossip. Its refusals are *Error.
type Keeper interface {
	Keys(ctx context.Context) (api.Keys, error)
	ChangeKeys(ctx context.Context, order, key string) error
}

func (s *Server) keys(c *call) error {
	list, err := s.opt.Node.Keys(s.ctx)
	if err != nil {
		return err
	}
	return putJSON(&c.Response, list)
}

// changeKeys leaves no line of the key itself.
func (s *Server) changeKeys(order string) func(*call) error {
	return func(c *call) error {
		var want api.KeyOrder
		if err := c.readJSON(&want); err != nil {
			return err
		}
		if err := s.opt.Node.ChangeKeys(s.ctx, order, want.Key); err != nil {
			return err
		}
		return s.done(c, order+" a gossip key")
	}
}
