package api

import (
	"time"

	"github.com/starling-lb/starling/proxy/backend"
)

// Members answers GET /v1/members, by name.
type Members struct {
	Members []Member `json:"members"`
}

// Member is one node of the cluster as this one sees it.
type Member struct {
	ID         string              `json:"id"`
	Name       string              `json:"name"`
	Address    string              `json:"address"` // of gossip; empty: a node alone
	Zone       string              `json:"zone"`
	State      backend.MemberState `json:"state"`
	Since      time.Time           `json:"since"` // it is alive, dead or has left
	Version    string              `json:"version"`
	ConfigHash string              `json:"config_hash"`
	RTT        float64             `json:"rtt"`        // 0: not measured yet
	ReportAge  *float64            `json:"report_age"` // null: it has said nothing yet, or is this node
	UDPLost    bool                `json:"udp_lost"`   // it answers over TCP alone: its reports may be lost
	Admin      string              `json:"admin"`      // address of its admin API
	AdminURL   string              `json:"admin_url"`  // of the same; empty: other machines do not reach it
	Self       bool                `json:"self"`

	Agreed Agreed `json:"agreed"`
	Hosts  bool   `json:"hosts"` // it keeps replicas, if it is asked to
	Level  uint32 `json:"level"` // the highest feature level that it can work at
}

// Agreed is what the cluster has agreed on about a node; empty: nothing, as before
// there is a cluster.
type Agreed string

// What can be agreed on about a node; the list is closed.
const (
	JoiningNode  Agreed = "joining"  // seen, and not heard yet
	ActiveNode   Agreed = "active"   // it gets replicas and leads
	DrainingNode Agreed = "draining" // operators have set it aside: others get its replicas
	LeavingNode  Agreed = "leaving"  // it leaves for good, once others have its replicas
	DeadNode     Agreed = "dead"     // its replicas are replaced where there is another node for them
	RemovedNode  Agreed = "removed"  // it has left, or was dead for long
)
