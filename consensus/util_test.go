package consensus

import (
	"bytes"

	"github.com/hashicorp/raft"

	"github.com/starling-lb/starling/consensus/transport"
)

type raftLog = raft.Log

func containsBytes(b []byte, part string) bool { return bytes.Contains(b, []byte(part)) }

func groupID(shard uint32) transport.GroupID { return transport.GroupID{Shard: shard, Incarnation: 1} }
