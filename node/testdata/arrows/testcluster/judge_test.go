package testcluster_test

import (
	"testing"

	"github.com/hashicorp/raft"

	"github.com/starling-lb/starling/consensus"
	"github.com/starling-lb/starling/node"
)

func init() {}
