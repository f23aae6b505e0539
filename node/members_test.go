package node

import (
	"testing"

	"github.com/starling-lb/starling/gossip"
	"github.com/starling-lb/starling/node/api"
	"github.com/starling-lb/starling/proxy/backend"
	"github.com/starling-lb/starling/shards/meta"
)

// TestStandingOfMembers: what is agreed on shows beside what is seen, and in it where a
// node that lives is to be left alone.
func TestStandingOfMembers(t *testing.T) {
	for _, c := range []struct {
		seen   backend.MemberState
		agreed meta.Node
		state  backend.MemberState
		word   api.Agreed
	}{
		{backend.MemberAlive, meta.Node{}, backend.MemberAlive, ""},
		{backend.MemberAlive, meta.Node{State: meta.Joining}, backend.MemberAlive, api.JoiningNode},
		{backend.MemberAlive, meta.Node{State: meta.Active}, backend.MemberAlive, api.ActiveNode},
		{backend.MemberAlive, meta.Node{State: meta.Draining}, backend.MemberDraining, api.DrainingNode},
		{backend.MemberAlive, meta.Node{State: meta.Draining, Leaving: true}, backend.MemberDraining, api.LeavingNode},
		{backend.MemberSuspect, meta.Node{State: meta.Draining, Leaving: true}, backend.MemberSuspect, api.LeavingNode},
		{backend.MemberDead, meta.Node{State: meta.Active}, backend.MemberDead, api.ActiveNode},
		{backend.MemberDead, meta.Node{State: meta.Dead}, backend.MemberDead, api.DeadNode},
		{backend.MemberLeft, meta.Node{State: meta.Removed, Leaving: true}, backend.MemberLeft, api.RemovedNode},
	} {
		m := memberOf(gossip.Member{ID: "a", State: c.seen, Meta: gossip.Meta{Name: "n1", Roles: gossip.Shards, Level: 3}}, c.agreed)
		if m.State != c.state || m.Agreed != c.word || !m.Hosts || m.Level != 3 || m.Name != "n1" {
			t.Errorf("seen %s, agreed %+v: %+v, want %s and %q", c.seen, c.agreed, m, c.state, c.word)
		}
	}
}
