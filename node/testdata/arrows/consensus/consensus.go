package consensus

import (
	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/memberlist" // want owner
	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2" // want owner
	"go.etcd.io/bbolt"                               // want owner

	"github.com/starling-lb/starling/consensus/transport"
	"github.com/starling-lb/starling/proxy/backend" // want arrow
	"github.com/starling-lb/starling/shards"        // want arrow
)
