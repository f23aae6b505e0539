package shards

import (
	"github.com/starling-lb/starling/consensus" // want arrow
	"github.com/starling-lb/starling/gossip"    // want arrow
	"github.com/starling-lb/starling/proxy/backend"
	"github.com/starling-lb/starling/proxy/wire" // want arrow
)
