package api

import "time"

// Upgraded answers POST /v1/upgrade: another process is the node now.
type Upgraded struct {
	PID     int     `json:"pid"`
	Version string  `json:"version"` // of its program
	Took    float64 `json:"took"`    // seconds, from the start of that process until it took connections in
	Waited  float64 `json:"waited"`  // of them, those in which whoever connected waited
	Streams int64   `json:"streams"` // that the process before carries to their end
}

// Elder is an older process of the node that carries its streams to their end.
type Elder struct {
	PID      int       `json:"pid"`
	Boot     uint64    `json:"boot"`
	Version  string    `json:"version"`
	Since    time.Time `json:"since"`             // when another took over
	Deadline time.Time `json:"deadline,omitzero"` // when it cuts what is left; zero: never
	InFlight int64     `json:"in_flight"`
	Waiting  int64     `json:"waiting"`
}
