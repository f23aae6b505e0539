package top

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/starling-lb/starling/node/api"
)

// View draws all of it: three lines of what matters, the page's list, the chosen
// row's words in full, what came last, and the keys.
func (m *model) View() tea.View {
	v := tea.NewView(strings.Join(m.lines(), "\n"))
	v.AltScreen = true
	v.WindowTitle = "starling top " + m.said.status.Node.Name
	return v
}

func (m *model) lines() []string {
	lines := []string{m.headline(), m.figures(), m.tabs()}
	head, rows := m.list()
	lines = append(lines, paint(faint, fit(head, m.width)))
	lines = append(lines, m.shown(rows)...)
	for len(lines) < m.height-3 {
		lines = append(lines, "")
	}
	if r, ok := chosen(m, rows); ok {
		lines = append(lines, paint(faint, fit(r.more, m.width)))
	} else {
		lines = append(lines, "")
	}
	return append(lines, paint(m.tone(), fit(m.bottom(), m.width)), m.keys())
}

func (m *model) headline() string {
	s := m.said.status
	if !m.asked {
		return paint(bold, "starling") + "  " + fit("asking "+m.node.Address(), m.width-10)
	}
	state := string(s.Node.State)
	if s.Drain != nil {
		state += ", " + string(s.Drain.Phase)
	}
	left := fmt.Sprintf("%s  %s  up %s", s.Node.Name, state, span(m.said.at.Sub(s.Node.Started)))
	right := fmt.Sprintf("%d/%d nodes", s.Cluster.Alive, s.Cluster.Members)
	if s.Shards.Count > 0 {
		right += fmt.Sprintf("  %d/%d shards led", s.Shards.Count-s.Shards.WithoutLeader, s.Shards.Count)
	}
	right += "  " + m.said.at.Local().Format("15:04:05")
	return paint(bold, "starling") + "  " + fit(spread(left, right, m.width-10), m.width-10)
}

func (m *model) figures() string {
	s, sessions, cv := m.said.status, 0, 0.0
	var all, done, others int64
	for _, p := range m.said.pools.Pools {
		sessions += p.Sessions
		cv = max(cv, p.StepTimeCV)
	}
	for _, b := range m.said.backends.Backends {
		all += b.InFlight.Cluster
	}
	for why, n := range s.Streams.Ended {
		if why == "done" {
			done = n
		} else {
			others += n
		}
	}
	return fit(fmt.Sprintf("here %d  cluster %d  waiting %d  step cv %.2f  sessions %d  done %d  other %d", s.Streams.InFlight, all, s.Streams.Waiting, cv, sessions, done, others), m.width)
}

func (m *model) tabs() string {
	var out []string
	used := 0
	for i, name := range []string{"Backends", "Nodes", "Shards", "Sessions", "Streams", "Events"} {
		text := fmt.Sprintf(" %d %s ", i+1, name)
		if used += len(text); used > m.width {
			break
		}
		if i == m.page {
			text = paint(reverse, text)
		}
		out = append(out, text)
	}
	return strings.Join(out, "")
}

// shown are the rows that there is room for, the chosen one among them.
func (m *model) shown(rows []line) (out []string) {
	at := min(max(0, m.row[m.page]), max(0, len(rows)-1))
	m.row[m.page] = at
	m.first = min(max(m.first, at-m.rows()+1), at)
	for i := m.first; i < min(len(rows), m.first+m.rows()); i++ {
		text := fit(rows[i].text, m.width)
		if i == at {
			out = append(out, paint(reverse, pad(text, m.width)))
			continue
		}
		out = append(out, paint(rows[i].tone, text))
	}
	return out
}

// bottom is what a person should know now, or else what happened last.
func (m *model) bottom() string {
	s := m.said.status
	switch {
	case m.question != nil && m.question.write:
		return m.question.text + m.question.typed + "_"
	case m.question != nil:
		return m.question.text + "y/n"
	case m.note != "":
		return m.note
	case m.err != nil:
		return m.err.Error()
	case len(s.Faults) > 0:
		return s.Faults[0]
	case s.NotReady != "" && s.Drain == nil:
		return "this node gets no traffic: " + s.NotReady
	case len(m.events) > 0:
		e := m.events[len(m.events)-1]
		return e.Time.Local().Format("15:04:05 ") + e.Text()
	}
	return ""
}

func (m *model) tone() tone {
	switch {
	case m.question != nil:
		return bold
	case m.note == "" && (m.err != nil || len(m.said.status.Faults) > 0):
		return red
	}
	return plain
}

func (m *model) keys() string {
	text := "1-6 page  up/down row  q quit"
	if m.question == nil {
		switch m.page {
		case pageBackends:
			text = "d drain u undrain e eject a admit w weight  " + text
		case pageNodes:
			text = "d drain  u undrain this node  " + m.other() + text
		case pageStreams:
			text = m.other() + text
		case pageSessions:
			text = "r rebalance on/off  " + text
		}
	} else if text = "y yes  any other key: no"; m.question.write {
		text = "enter yes  esc no"
	}
	return paint(faint, fit(text, m.width))
}

// other is the key for what is not shown: all nodes, or the one that is asked.
func (m *model) other() string {
	if m.whole {
		return "c this node's view  "
	}
	return "c all nodes  "
}

// span is a time for people, short.
func span(d time.Duration) string {
	switch d = max(0, d.Round(time.Second)); {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd%02dh", int(d.Hours())/24, int(d.Hours())%24)
}

// leads is how many shards each node leads.
func leads(list []api.Shard) string {
	by := map[string]int{}
	for _, s := range list {
		by[s.Leader]++
	}
	var out []string
	for _, name := range slices.Sorted(maps.Keys(by)) {
		who := name
		if who == "" {
			who = "nobody"
		}
		out = append(out, fmt.Sprintf("%s %d", who, by[name]))
	}
	return strings.Join(out, ", ")
}
