package top

import (
	"cmp"
	"context"
	"slices"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/starling-lb/starling/node/api"
)

// model is what is on the screen. Only Bubble Tea's loop uses it.
type model struct {
	ctx           context.Context
	node          Asked
	every         time.Duration
	width, height int

	said   answers     // the last that came of each
	asked  bool        // how the node is has come
	err    error       // why some of it is not newer
	events []api.Event // oldest first

	whole    bool        // nodes and streams are asked of all
	page     int         // of pages
	row      [nPages]int // that is chosen, on each
	first    int         // row at the top of the screen
	question *question   // that waits for an answer
	note     string      // what came of the last order
	quits    bool
}

// The pages, in the order of their keys.
const (
	pageBackends = iota
	pageNodes
	pageShards
	pageSessions
	pageStreams
	pageEvents
	nPages
)

func (m *model) Init() tea.Cmd { return m.ask(false) }

// Update takes a message.
func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case round:
		if m.take(msg); msg.extra {
			return m, nil
		}
		return m, tea.Tick(m.every, func(time.Time) tea.Msg { return turn{} })
	case turn:
		return m, m.ask(false)
	case happened:
		if m.events = append(m.events, api.Event(msg)); len(m.events) > keptEvents {
			m.events = slices.Delete(m.events, 0, 1)
		}
	case done:
		if m.note = msg.what; msg.err != nil {
			m.note = msg.err.Error()
		}
		return m, m.ask(true)
	case tea.KeyPressMsg:
		return m, m.press(msg)
	}
	return m, nil
}

// take keeps what came; what did not stays as it was.
func (m *model) take(r round) {
	m.err = r.err
	for _, put := range r.parts {
		put(&m.said)
		m.said.at = r.at
	}
	m.asked = !m.said.status.Node.Started.IsZero()
	sorted(&m.said)
}

// sorted has lists in an order that stays.
func sorted(a *answers) {
	slices.SortFunc(a.backends.Backends, func(x, y api.Backend) int { return cmp.Or(cmp.Compare(x.Pool, y.Pool), cmp.Compare(x.ID, y.ID)) })
	slices.SortFunc(a.pools.Pools, func(x, y api.Pool) int { return cmp.Compare(x.Name, y.Name) })
}

// press takes a key: an answer where there is a question, else a wish.
func (m *model) press(key tea.KeyPressMsg) tea.Cmd {
	if m.question != nil {
		return m.reply(key)
	}
	m.note = ""
	switch k := key.String(); k {
	case "q", "ctrl+c":
		m.quits = true
		return tea.Quit
	case "1", "2", "3", "4", "5", "6":
		m.turnTo(int(k[0] - '1'))
	case "tab", "right", "l":
		m.turnTo((m.page + 1) % nPages)
	case "shift+tab", "left", "h":
		m.turnTo((m.page + nPages - 1) % nPages)
	case "c":
		m.whole = !m.whole
		return m.ask(true)
	case "down", "j":
		m.row[m.page]++
	case "up", "k":
		m.row[m.page]--
	case "pgdown", "space":
		m.row[m.page] += m.rows()
	case "pgup":
		m.row[m.page] -= m.rows()
	case "home", "g":
		m.row[m.page] = 0
	case "end", "G":
		m.row[m.page] = 1 << 30
	default:
		m.question = m.wish(k)
	}
	return nil
}

func (m *model) turnTo(page int) { m.page, m.first = page, 0 }

// rows are the lines for a page's list.
func (m *model) rows() int { return max(1, m.height-7) }
