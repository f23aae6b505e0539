package top

import (
	"fmt"
	"strings"
	"time"

	"github.com/starling-lb/starling/node/api"
)

// list is the page's: its heads and its rows, made for 80 columns. What is wider
// comes last, and gets the room that a wider terminal has.
func (m *model) list() (head string, rows []line) {
	switch m.page {
	case pageNodes:
		return m.nodes()
	case pageShards:
		return m.shards()
	case pageSessions:
		return m.sessions()
	case pageStreams:
		return m.streams()
	case pageEvents:
		return m.eventList()
	}
	return m.backends()
}

func (m *model) backends() (string, []line) {
	columns := []column{{"BACKEND", 12, false}, {"STATE", 10, false}, {"HERE", 5, true}, {"ALL", 5, true}, {"CAP", 5, true}, {"STEP", 6, true}, {"SPEED", 7, true}, {"SESS", 6, true}, {"W", 3, true}, {"WHY", 0, false}}
	var rows []line
	for _, b := range m.said.backends.Backends {
		state := string(b.State)
		if b.Slow {
			state = "slow"
		}
		limit, step, speed := "-", "-", "-"
		if b.Cap > 0 {
			limit = fmt.Sprint(b.Cap)
		}
		if b.StepTime > 0 {
			step = fmt.Sprintf("%.0fms", 1000*b.StepTime)
		}
		if b.Speed > 0 {
			speed = fmt.Sprintf("%.1f/s", b.Speed)
		}
		rows = append(rows, line{row(columns, []string{
			b.ID, state, fmt.Sprint(b.InFlight.Local), fmt.Sprint(b.InFlight.Cluster), limit, step, speed, fmt.Sprint(b.Sessions), fmt.Sprint(b.Weight), b.Reason,
		}), stateTone(string(b.State)), b.ID + " at " + b.URL + ": " + b.Reason})
	}
	return heads(columns), rows
}

func stateTone(state string) tone {
	switch state {
	case "active":
		return plain
	case "unhealthy", "ejected":
		return red
	}
	return yellow
}

// allNodes are the nodes as each says itself how it is.
func (m *model) allNodes() (string, []line) {
	columns := []column{{"NODE", 12, false}, {"STATE", 10, false}, {"UP", 7, true}, {"STREAMS", 7, true}, {"WAIT", 5, true}, {"CONFIG", 12, false}, {"SAYS", 0, false}}
	var rows []line
	for _, n := range m.said.status.Nodes {
		name := n.Name
		if n.Self {
			name = "*" + name
		}
		if n.Status == nil {
			rows = append(rows, line{row(columns, []string{name, string(n.State), "-", "-", "-", "-", n.Error}), red, n.Name + ": " + n.Error})
			continue
		}
		s, says, look := n.Status, "starling "+n.Status.Node.Version, plain
		for _, e := range s.Elders {
			says = fmt.Sprintf("process %d carries %d; ", e.PID, e.InFlight) + says
		}
		if s.NotReady != "" {
			says, look = s.NotReady, yellow
		}
		if len(s.Faults) > 0 {
			says, look = s.Faults[0], red
		}
		rows = append(rows, line{row(columns, []string{
			name, string(n.State), m.since(s.Node.Started), fmt.Sprint(s.Streams.InFlight), fmt.Sprint(s.Streams.Waiting), s.ConfigHash, says,
		}), look, n.Name + ": " + says})
	}
	return heads(columns), rows
}

func (m *model) nodes() (string, []line) {
	if m.said.status.Nodes != nil {
		return m.allNodes()
	}
	columns := []column{{"NODE", 12, false}, {"STATE", 18, false}, {"FOR", 7, true}, {"RTT", 7, true}, {"REPORT", 6, true}, {"CONFIG", 12, false}, {"ADDRESS", 0, false}}
	var rows []line
	for _, n := range m.said.members.Members {
		state, look, report := string(n.State), plain, "-"
		if n.Agreed != "" && n.Agreed != api.ActiveNode && string(n.Agreed) != state {
			state += ", " + string(n.Agreed)
		}
		if n.ReportAge != nil {
			report = fmt.Sprintf("%.1fs", *n.ReportAge)
		}
		switch n.State {
		case "dead":
			look = red
		case "suspect", "draining":
			look = yellow
		}
		name := n.Name
		if n.Self {
			name = "*" + name
		}
		rows = append(rows, line{row(columns, []string{name, state, m.since(n.Since), fmt.Sprintf("%.1fms", 1000*n.RTT), report, n.ConfigHash, n.Address}), look, strings.TrimSpace(n.Address+" "+n.Zone) + ", starling " + n.Version + ", admin " + orDash(n.Admin)})
	}
	return heads(columns), rows
}

func (m *model) since(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return span(m.said.at.Sub(t))
}

func (m *model) shards() (string, []line) {
	columns := []column{{"SHARD", 7, false}, {"LEADER", 10, false}, {"TERM", 5, true}, {"SESSIONS", 8, true}, {"APPLIED", 8, true}, {"REPLICAS", 20, false}, {"STEP", 0, false}}
	var rows []line
	for _, s := range m.said.shards.Shards {
		id, step, look := fmt.Sprint(s.ID), "", plain
		if s.ID == 0 {
			id = "0 meta"
		}
		if s.Step != nil {
			step, look = s.Step.Kind+" "+s.Step.Node+": "+s.Step.Reason, yellow
			if s.Step.Waits != "" {
				step = "waits: " + s.Step.Waits
			}
		}
		more := step
		if s.Leader == "" {
			look = red
		}
		if step == "" {
			more = "who leads how many: " + leads(m.said.shards.Shards)
		}
		var on []string
		for _, r := range s.Replicas {
			on = append(on, replica(r))
		}
		rows = append(rows, line{row(columns, []string{id, orDash(s.Leader), fmt.Sprint(s.Term), fmt.Sprint(s.Sessions), fmt.Sprint(s.Applied), strings.Join(on, " "), step}), look, more})
	}
	return heads(columns), rows
}

// replica is its node, with a mark where it has no vote, and what it lacks.
func replica(r api.Replica) string {
	text := r.Node
	if r.Role == api.NonvoterRole || r.Role == api.WantedRole {
		text += "?"
	}
	if r.State == "dead" {
		text += "!"
	}
	if r.Lag > 0 {
		text += fmt.Sprintf("-%d", r.Lag)
	}
	return text
}

func (m *model) sessions() (string, []line) {
	columns := []column{{"POOL", 12, false}, {"POLICY", 18, false}, {"SESSIONS", 8, true}, {"MOVED", 6, true}, {"STAYED", 6, true}, {"REBOUND", 7, true}, {"CV", 5, true}, {"REBALANCING", 0, false}}
	var rows []line
	for _, p := range m.said.pools.Pools {
		why, look := "off", plain
		if p.Rebalance.Enabled {
			why = "on: " + orDash(p.Rebalance.Reason)
		}
		if p.Panic {
			why, look = "PANIC: health is ignored", red
		}
		policy := p.Policy
		if p.Second != "" {
			policy += "+" + p.Second
		}
		rows = append(rows, line{row(columns, []string{
			p.Name, policy, fmt.Sprint(p.Sessions), fmt.Sprint(p.Moves.Done), fmt.Sprint(p.Moves.Cancelled), fmt.Sprint(p.Moves.Rebound), fmt.Sprintf("%.2f", p.StepTimeCV), why,
		}), look, fmt.Sprintf("%s: %d usable, rebalancing is %s", p.Name, p.Usable, why)})
	}
	return heads(columns), rows
}

// allStreams are the oldest of all nodes, and whose are missing.
func (m *model) allStreams() (string, []line) {
	columns := []column{{"STREAM", 8, false}, {"NODE", 10, false}, {"POOL", 8, false}, {"BACKEND", 10, false}, {"PHASE", 10, false}, {"FOR", 7, true}, {"SENT", 9, true}, {"CLIENT", 0, false}}
	var rows []line
	for _, n := range m.said.streams.Nodes {
		if n.Error != "" {
			rows = append(rows, line{"nothing of " + n.Name + ": " + n.Error, red, n.Name + ": " + n.Error})
		}
	}
	for _, s := range m.said.streams.Streams {
		rows = append(rows, line{row(columns, []string{s.ID, s.Node, s.Pool, orDash(s.Backend), s.Phase, m.since(s.Started), fmt.Sprint(s.BytesOut), s.Client}), plain, ""})
	}
	return heads(columns), rows
}

func (m *model) streams() (string, []line) {
	if m.said.streams.Nodes != nil {
		return m.allStreams()
	}
	columns := []column{{"STREAM", 8, false}, {"POOL", 10, false}, {"BACKEND", 12, false}, {"PHASE", 11, false}, {"FOR", 7, true}, {"SENT", 10, true}, {"CLIENT", 0, false}}
	var rows []line
	for _, s := range m.said.streams.Streams {
		rows = append(rows, line{row(columns, []string{s.ID, s.Pool, orDash(s.Backend), s.Phase, m.since(s.Started), fmt.Sprint(s.BytesOut), s.Client}), plain, ""})
	}
	return heads(columns), rows
}

// eventList has the newest first.
func (m *model) eventList() (string, []line) {
	columns := []column{{"TIME", 8, false}, {"KIND", 8, false}, {"WHAT", 0, false}}
	var rows []line
	for i := len(m.events) - 1; i >= 0; i-- {
		e, look := m.events[i], plain
		switch e.To {
		case "unhealthy", "ejected", "dead", "not_ready":
			look = red
		case "active", "alive", "ready":
			look = green
		case "draining":
			look = yellow
		}
		rows = append(rows, line{row(columns, []string{e.Time.Local().Format("15:04:05"), string(e.Kind), e.Text()}), look, e.Text()})
	}
	return heads(columns), rows
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
