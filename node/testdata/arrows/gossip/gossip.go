package gossip

import (
	"github.com/hashicorp/memberlist"
	"github.com/hashicorp/raft" // want owner
	"github.com/spf13/cobra"    // want owner

	"github.com/starling-lb/starling/proxy" // want arrow
	"github.com/starling-lb/starling/proxy/backend"
	"github.com/starling-lb/starling/shards" // want arrow
)
