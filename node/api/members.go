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
	Self       bool                `json:"self"`
}
