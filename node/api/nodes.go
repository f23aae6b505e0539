package api

import "github.com/starling-lb/starling/proxy/backend"

// NodeAnswer is what one node of the cluster said, where all were asked, or why it
// did not.
type NodeAnswer struct {
	ID    string              `json:"id"`
	Name  string              `json:"name"`
	State backend.MemberState `json:"state"` // as the node sees it that asks
	Self  bool                `json:"self"`  // it is the one that asks
	Error string              `json:"error"` // why there is nothing of it; empty: it answered
	Took  float64             `json:"took"`  // seconds

	Count  int64   `json:"count,omitempty"`  // of GET /v1/streams: how many it has, also those that are not listed
	Status *Status `json:"status,omitempty"` // of GET /v1/status
}

// NodeReloaded is what one node said where all were to reload.
type NodeReloaded struct {
	ID         string `json:"id"`
	Name       string `json:"name"`
	ConfigHash string `json:"config_hash"` // of what is in force there now
	Changed    bool   `json:"changed"`
	Error      string `json:"error"` // why it has not reloaded, where that says nothing of its file; empty: it has
}
