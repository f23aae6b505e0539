package admin

import "github.com/starling-lb/starling/node/api"

// table is every line of the API. What it says of bodies and answers is what
// /v1/openapi.json tells.
func (s *Server) table(pprof bool) []route {
	routes := append(s.shows(), s.changes()...)
	routes = append(routes, s.page()...)
	if pprof {
		routes = append(routes, s.profiles()...)
	}
	return routes
}

// shows are the lines that change nothing.
func (s *Server) shows() []route {
	return []route{
		{method: "GET", path: "/healthz", do: s.healthz, who: everyone, gives: "ok\n", says: "The process lives"},
		{method: "GET", path: "/readyz", do: s.readyz, who: everyone, gives: "ready\n", says: "The node may get traffic", codes: []Code{NotReady}},
		{method: "GET", path: "/metrics", do: s.metrics(), who: scrapers, gives: "", says: "Metrics for Prometheus"},
		{method: "GET", path: "/v1/status", do: s.status, query: []string{"scope"}, gives: api.Status{}, says: "The node, what it sees of its cluster, and what runs on it", codes: []Code{Conflict}},
		{method: "GET", path: "/v1/members", do: s.members, gives: api.Members{}, says: "Every node of the cluster as this one sees it"},
		{method: "GET", path: "/v1/shards", do: s.shards, gives: api.ShardList{}, says: "The shards, their leaders and replicas, and what is done to them"},
		{method: "GET", path: "/v1/keys", do: s.keys, gives: api.Keys{}, says: "Which keys of gossip every live node has, by marks", codes: []Code{Conflict}},
		{method: "GET", path: "/v1/backends", do: s.backends, query: []string{"scope"}, gives: api.Backends{}, says: "Every backend as this node sees it", codes: []Code{Conflict}},
		{method: "GET", path: "/v1/pools", do: s.pools, query: []string{"scope"}, gives: api.Pools{}, says: "Every pool", codes: []Code{Conflict}},
		{method: "GET", path: "/v1/streams", do: s.streams, query: []string{"limit", "scope"}, gives: api.StreamList{}, says: "The streams that run on this node, oldest first", codes: []Code{Conflict}},
		{method: "GET", path: "/v1/sessions/{pool}/{key}", do: s.session, gives: api.Session{}, says: "Where a session lives", codes: []Code{NotReady}},
		{method: "GET", path: "/v1/config", do: s.config, gives: api.Config{}, says: "The configuration in force, secrets masked"},
		{method: "GET", path: "/v1/events", do: s.events, query: []string{"recent"}, gives: api.Event{}, mime: eventStream, says: "Every change of state, as server-sent events", codes: []Code{TooManyConnections}},
		{method: "GET", path: "/v1/openapi.json", do: s.openapi, gives: map[string]any{}, says: "This API, as OpenAPI 3.1"},
	}
}

// changes are what operators do.
func (s *Server) changes() []route {
	routes := []route{
		{method: "POST", path: "/v1/pools/{pool}/backends", do: s.addBackend, takes: api.NewBackend{}, says: "Add a backend to a pool"},
		{method: "DELETE", path: "/v1/pools/{pool}/backends/{id}", do: s.removeBackend, says: "Take a backend out of a pool"},
		{method: "POST", path: "/v1/pools/{pool}/policy", do: s.setPolicy, takes: api.Policy{}, says: "Change how a pool's backends are chosen"},
		{method: "POST", path: "/v1/pools/{pool}/rebalance", do: s.setRebalance, takes: api.Rebalancing{}, says: "Switch the moving of sessions to even out load"},
		{method: "POST", path: "/v1/backends/{id}/weight", do: s.weighBackend, takes: api.Weight{}, says: "Change a backend's weight"},
		{method: "POST", path: "/v1/sessions/{pool}/{key}/move", do: s.moveSession, takes: api.Destination{}, says: "Move a session between two of its turns", codes: []Code{NotReady}},
		{method: "POST", path: "/v1/shards/{id}/reset", do: s.resetShard(false), says: "Make a shard anew that has lost most of its replicas for good"},
		{method: "POST", path: "/v1/shards/{id}/empty", do: s.resetShard(true), says: "Make a shard anew with nothing in it, that has lost all of its replicas for good"},
		{method: "POST", path: "/v1/reload", do: s.reload, query: []string{"scope"}, gives: api.Reloaded{}, says: "Read the configuration file again"},
		{method: "POST", path: "/v1/upgrade", do: s.upgrade, gives: api.Upgraded{}, says: "Have a new process take this one's place"},
		{method: "POST", path: "/v1/node/drain", do: s.ruleNode("drain", s.opt.Node.DrainNode), says: "Have the node take no new streams"},
		{method: "POST", path: "/v1/node/undrain", do: s.ruleNode("undrain", s.opt.Node.StayNode), says: "Take a drain back, or a leave that is not over yet"},
		{method: "POST", path: "/v1/node/leave", do: s.ruleNode("leave", s.opt.Node.LeaveNode), says: "Have the node leave its cluster for good, drain and end"},
		{method: "POST", path: "/v1/keys/install", do: s.changeKeys("install"), takes: api.KeyOrder{}, says: "Have every node decrypt gossip with a key too"},
		{method: "POST", path: "/v1/keys/use", do: s.changeKeys("use"), takes: api.KeyOrder{}, says: "Have every node encrypt gossip with a key"},
		{method: "POST", path: "/v1/keys/remove", do: s.changeKeys("remove"), takes: api.KeyOrder{}, says: "Have every node forget a key of gossip"},
	}
	for verb, says := range map[Verb]string{
		Drain: "Give a backend nothing new", Undrain: "Take a drain back", Reset: "Take every decision of operators on a backend back",
	} {
		routes = append(routes, route{method: "POST", path: "/v1/backends/{id}/" + string(verb), do: s.changeBackend(verb), says: says})
	}
	for verb, says := range map[Verb]string{
		Eject: "Have all nodes take a backend out for a while, as failures would", Admit: "Have all nodes take an ejection back at once",
	} {
		routes = append(routes, route{method: "POST", path: "/v1/backends/{id}/" + string(verb), do: s.throw(verb), query: []string{"scope"}, says: says})
	}
	return routes
}
