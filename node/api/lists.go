package api

import "github.com/starling-lb/starling/proxy/backend"

// Lists are the closed lists that fields hold words of, each a slice of the field's
// own type.
func Lists() []any {
	return []any{
		backend.States(), backend.Reasons(), EventKinds(),
		[]backend.CapSource{backend.CapConfig, backend.CapEngine, backend.CapLearned, backend.CapNone},
		[]backend.MemberState{backend.MemberAlive, backend.MemberSuspect, backend.MemberDead, backend.MemberLeft, backend.MemberDraining, ""}, // "": not known
		[]Agreed{JoiningNode, ActiveNode, DrainingNode, LeavingNode, DeadNode, RemovedNode, ""},
		[]DrainPhase{NoticePhase, TurningPhase, CuttingPhase},
		[]ReplicaRole{LeaderRole, VoterRole, NonvoterRole, WantedRole},
	}
}
