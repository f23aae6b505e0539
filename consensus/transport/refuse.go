package transport

import (
	"errors"
	"fmt"
)

// Code says why a connection or a call was refused. The list is closed, and
// goes over the wire: numbers are never given to another meaning.
type Code uint8

const (
	Accepted           Code = iota
	RefusedHello            // not our protocol
	RefusedVersion          // no version that both speak
	RefusedCluster          // a node of another cluster
	RefusedNode             // meant for another node: the address has a new owner
	RefusedCertificate      // the certificate is good for other nodes than the caller says it is
	RefusedGroup            // no replica of that shard is here
	RefusedIncarnation      // a replica of another incarnation of that shard is here
	RefusedService          // no such service here
	RefusedBusy             // a limit is reached; later it may be taken
	RefusedStopping         // the node is about to stop
	RefusedSize             // a message over the service's limit
	RefusedPlace            // the caller's node is known to be at another address
)

func (c Code) String() string {
	switch c {
	case Accepted:
		return "accepted"
	case RefusedHello:
		return "hello"
	case RefusedVersion:
		return "version"
	case RefusedCluster:
		return "cluster"
	case RefusedNode:
		return "node"
	case RefusedCertificate:
		return "certificate"
	case RefusedGroup:
		return "group"
	case RefusedIncarnation:
		return "incarnation"
	case RefusedService:
		return "service"
	case RefusedBusy:
		return "busy"
	case RefusedStopping:
		return "stopping"
	case RefusedSize:
		return "size"
	case RefusedPlace:
		return "place"
	}
	return fmt.Sprintf("code %d", uint8(c))
}

// RefusedError is what the other side, or this one, said instead of carrying.
type RefusedError struct {
	Code Code
	Text string // what did not fit, with both sides' values
}

func (e *RefusedError) Error() string { return fmt.Sprintf("refused (%s): %s", e.Code, e.Text) }

// ErrNotSent marks errors of calls that never left this node: nothing was done,
// another may be asked. Without it the outcome is unknown.
var ErrNotSent = errors.New("not sent")

// ErrStopped is what calls get once the transport stops.
var ErrStopped = errors.New("transport is stopped")

// ErrSlow ends a feed whose reader does not keep up.
var ErrSlow = errors.New("the reader does not keep up: its buffer is full")

// RemoteError is what a service answered instead of an answer.
type RemoteError struct {
	Node, Service, Text string
}

func (e *RemoteError) Error() string {
	return fmt.Sprintf("node %s answered to %s: %s", e.Node, e.Service, e.Text)
}
