package sim

import (
	"time"

	"github.com/starling-lb/starling/proxy/backend"
)

// The cells with sessions, and what they have to show.

// Talking is the reference cell where the requests are turns of sessions: six each,
// ten seconds from an answer to the next turn.
func Talking(moves *backend.RebalanceConfig) Cell {
	c := Reference()
	c.Load.Requests = 100_000
	c.Sessions = &Sessions{Turns: 6, Think: 10 * time.Second, Moves: moves}
	return c
}

// TalkingJoin is a cell at rho 0.65 where a quarter of the engines is new, and at
// half speed for 15 s. Sessions have 15 turns, and some are far busier than others.
// The five minutes from then on are measured.
func TalkingJoin(moves *backend.RebalanceConfig, proxies, engines int) Cell {
	const from = 450.0 // when as many sessions end as begin
	c := Sized(proxies, engines, 0.65)
	for e := range engines / 4 {
		c.Faults = append(c.Faults, Fault{Kind: Join, Engine: e, From: from, To: from + 15})
	}
	c.Window = 5 * time.Minute
	c.Load.Requests = c.arrivals(from + c.Window.Seconds() + 60)
	c.Sessions = &Sessions{Turns: 15, Think: 10 * time.Second, Skew: 1, Moves: moves}
	return c
}

// What is asked of sessions.
const (
	MovesMost = 0.1 // per 100 turns, of unlike engines at rest
	ShareLess = 21  // percent of the requests that new engines get, where 25 is fair
)

// NewShare is the part of the requests that came to the first quarter of the
// engines, in percent.
func (f Figures) NewShare() float64 {
	at, all := 0.0, 0.0
	for e, n := range f.Attempts {
		if all += n; e < len(f.Attempts)/4 {
			at += n
		}
	}
	return 100 * at / all
}
