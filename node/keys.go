package node

import (
	"context"
	"errors"
	"fmt"

	"github.com/starling-lb/starling/gossip"
	"github.com/starling-lb/starling/node/admin"
	"github.com/starling-lb/starling/node/api"
)

// Keys answers GET /v1/keys.
func (n *Node) Keys(ctx context.Context) (api.Keys, error) {
	answers, err := n.order(ctx, gossip.KeyList, nil)
	if err != nil {
		return api.Keys{}, err
	}
	list := api.Keys{Nodes: []api.NodeKeys{}}
	for _, a := range answers {
		list.Nodes = append(list.Nodes, api.NodeKeys{ID: a.ID, Name: a.Name, Keys: append([]string{}, a.Marks...), Error: a.Err})
	}
	return list, nil
}

// ChangeKeys answers POST /v1/keys/install, use and remove: on every live node,
// or with an error that names those that did not.
func (n *Node) ChangeKeys(ctx context.Context, order, text string) error {
	key, err := gossip.ParseKey(text)
	if err != nil {
		return refuse(admin.BadRequest, "the key %v", err)
	}
	answers, err := n.order(ctx, gossip.KeyOrder(order), key)
	if err != nil {
		return err
	}
	var bad []error
	for _, a := range answers {
		if a.Err != "" {
			bad = append(bad, fmt.Errorf("node %s (%s): %s", a.Name, a.ID, a.Err))
		}
	}
	if len(bad) > 0 {
		return refuse(admin.Conflict, "%v; the other nodes have done it: mend these and ask again", errors.Join(bad...))
	}
	return nil
}

func (n *Node) order(ctx context.Context, what gossip.KeyOrder, key []byte) ([]gossip.KeyAnswer, error) {
	c := n.cluster.Load()
	if c == nil {
		return nil, refuse(admin.Conflict, "this node is alone and has no gossip keys; give it a cluster section")
	}
	answers, err := c.Keys(ctx, what, key)
	if err != nil {
		return nil, refuse(admin.Conflict, "%v", err)
	}
	return answers, nil
}
