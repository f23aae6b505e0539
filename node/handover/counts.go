package handover

import (
	"encoding/json"
	"slices"
	"time"
)

// Counts is what an elder says of itself.
type Counts struct {
	Version  string    `json:"version"` // of its program
	Since    time.Time `json:"since"`   // when it handed over
	Deadline time.Time `json:"deadline,omitzero"`

	InFlight int64     `json:"in_flight"` // streams
	Waiting  int64     `json:"waiting"`
	Backends []Carried `json:"backends"` // that have some, by id
	Ended    []End     `json:"ended"`    // streams since then, by all but when; it only grows

	Trials json.RawMessage `json:"trials,omitempty"` // whatever it had begun to find out, and what came of it
}

// Carried is what an elder carries to one backend.
type Carried struct {
	ID       string `json:"id"`
	InFlight int    `json:"in_flight"`
	Running  int    `json:"running"` // of them, those whose answer has begun
}

// End counts streams that ended alike.
type End struct {
	Pool    string `json:"pool"`
	Backend string `json:"backend"`
	Reason  string `json:"reason"`
	Count   int64  `json:"count"`
}

func (c Counts) same(other Counts) bool {
	return c.Deadline.Equal(other.Deadline) && c.InFlight == other.InFlight && c.Waiting == other.Waiting && slices.Equal(c.Backends, other.Backends) && slices.Equal(c.Ended, other.Ended) && string(c.Trials) == string(other.Trials)
}

// said is what an elder sends on its first visit: its counts, or a part of the list
// of its streams.
type said struct {
	Counts  *Counts           `json:"counts,omitempty"`
	Streams []json.RawMessage `json:"streams,omitempty"`
	More    bool              `json:"more,omitempty"` // of the list follows
	Of      int               `json:"of,omitempty"`   // how many were asked for; 0: an older program does not say
}

// maxPart bounds what one frame lists, in bytes.
const maxPart = maxFrame / 4

// parts are a list of as many streams as were asked for, or all, cut so that each part
// goes into a frame.
func parts(list []json.RawMessage, of int) (all []said) {
	part, size := said{Of: of}, 0
	for _, s := range list {
		if len(s) > maxPart {
			continue // it is no stream of ours
		}
		if size += len(s) + 1; size > maxPart {
			part.More = true
			all = append(all, part)
			part, size = said{Of: of}, len(s)+1
		}
		part.Streams = append(part.Streams, s)
	}
	return append(all, part)
}

// listed is an answer to an ask.
type listed struct {
	streams []json.RawMessage
	of      int
	came    time.Time
}

// answers tells whether it is one for who wants so many now, though it may have come too
// late for who asked before.
func (a listed) answers(limit int) bool {
	return time.Since(a.came) < streamsTime && (a.of == 0 || a.of >= limit || len(a.streams) < a.of)
}

// ask is what its heir sends there. Of several only the last one is answered.
type ask struct {
	Streams int `json:"streams"` // how many to list
}
