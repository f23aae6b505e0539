package consensus_test

import (
	"testing"

	"github.com/starling-lb/starling/shards"
	"github.com/starling-lb/starling/testcluster/fault" // want uphill
)

var update = false
