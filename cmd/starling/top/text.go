package top

import (
	"strings"
	"unicode/utf8"
)

// tone is how a text is drawn: the number of a terminal's attribute.
type tone string

// The tones. Every one is a help only: what matters is in the words.
const (
	plain   tone = ""
	bold    tone = "1"
	faint   tone = "2"
	reverse tone = "7"
	red     tone = "31"
	green   tone = "32"
	yellow  tone = "33"
)

func paint(t tone, text string) string {
	if t == plain || text == "" {
		return text
	}
	return "\x1b[" + string(t) + "m" + text + "\x1b[m"
}

// line is a row of a list.
type line struct {
	text string
	tone tone
	more string // what the row has no room for
}

// fit cuts a text to a width; what cannot be printed, it replaces: a name may hold
// anything.
func fit(text string, width int) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 || r == utf8.RuneError {
			return '?'
		}
		return r
	}, text)
	if utf8.RuneCountInString(text) <= width {
		return text
	}
	if width < 2 {
		return ""
	}
	return string([]rune(text)[:width-1]) + "~"
}

func pad(text string, width int) string {
	return text + strings.Repeat(" ", max(0, width-utf8.RuneCountInString(text)))
}

// spread has two texts at the two ends of a line.
func spread(left, right string, width int) string {
	gap := width - utf8.RuneCountInString(left) - utf8.RuneCountInString(right)
	return left + strings.Repeat(" ", max(2, gap)) + right
}

// column is one of a list: so wide, to the right or the left; the last one takes
// what is left.
type column struct {
	name  string
	width int
	right bool
}

// row lays cells out by columns.
func row(columns []column, cells []string) string {
	var b strings.Builder
	for i, c := range columns {
		text := cells[i]
		if i < len(columns)-1 || c.right {
			text = fit(text, c.width)
			gap := strings.Repeat(" ", max(0, c.width-utf8.RuneCountInString(text)))
			if c.right {
				text = gap + text
			} else {
				text += gap
			}
		}
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(text)
	}
	return strings.TrimRight(b.String(), " ")
}

func heads(columns []column) string {
	var names []string
	for _, c := range columns {
		names = append(names, c.name)
	}
	return row(columns, names)
}
