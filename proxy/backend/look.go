package backend

import "time"

// MaxLooks bounds the health checks that are remembered, and reported, of one
// backend by one node.
const MaxLooks = 10

// Finding is what one health check found.
type Finding string

// The findings of a health check; the list is closed. As in the metric
// health_checks_total, slow is alive; NotReady is alive without wanting traffic.
const (
	LookOK       Finding = "ok"
	LookSlow     Finding = "slow"
	LookFail     Finding = "fail"
	LookNotReady Finding = "not_ready"
)

// Look is one health check.
type Look struct {
	At      time.Time // when it ended, by the clock of who made it
	Took    time.Duration
	Finding Finding
	Why     string // of a failure, for people; not gossiped
}
