package api

// Keys answers GET /v1/keys: which keys of gossip each live node has. Keys are
// told by marks, never themselves.
type Keys struct {
	Nodes []NodeKeys `json:"nodes"`
}

// NodeKeys is one node's keys.
type NodeKeys struct {
	ID    string   `json:"id"`
	Name  string   `json:"name"`
	Keys  []string `json:"keys"`  // marks; the first encrypts
	Error string   `json:"error"` // why it did not answer; empty: it did
}

// KeyOrder is the body of POST /v1/keys/install, use and remove.
type KeyOrder struct {
	Key string `json:"key"` // base64, as in cluster.gossip_keys
}
