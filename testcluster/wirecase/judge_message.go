package wirecase

import (
	"slices"
	"strings"
	"time"
)

func (w HeaderWant) any() bool {
	return len(w.Lines)+len(w.Joined)+len(w.Has)+len(w.Absent) > 0
}

func (w HeaderWant) judge(m *Message, f *faults) {
	for name, want := range w.Lines {
		if got := m.Lines(name); !slices.EqualFunc(got, want, func(g string, w Latin) bool { return g == string(w) }) {
			f.add("header_lines: %s is %q, want %q", name, got, want)
		}
	}
	for name, want := range w.Joined {
		if got := elements(m.Lines(name)); !slices.Equal(got, elements([]string{string(want)})) {
			f.add("header_joined: %s is %q, want %q", name, got, want)
		}
	}
	for name, want := range w.Has {
		got := elements(m.Lines(name))
		if !slices.ContainsFunc(got, func(e string) bool { return strings.EqualFold(e, want) }) {
			f.add("header_has: %s is %q, want %q in it", name, got, want)
		}
	}
	for _, name := range w.Absent {
		if got := m.Lines(name); got != nil {
			f.add("header_absent: %s is %q", name, got)
		}
	}
}

// elements are the lines of a field read as one comma list.
func elements(lines []string) []string {
	if lines == nil {
		return nil
	}
	list := strings.Split(strings.Join(lines, ","), ",")
	for i, e := range list {
		list[i] = strings.Trim(e, " \t")
	}
	return list
}

func judgeBody(m *Message, want *Latin, f *faults) {
	if want != nil && string(m.Body) != string(*want) {
		f.add("body: got %s, want %s", quoted(m.Body), quoted([]byte(*want)))
	}
}

func judgeStart(m *Message, began time.Time, within int, f *faults) {
	if within == 0 {
		return
	}
	if took := m.BodyAt.Sub(began); m.BodyAt.IsZero() || took > ms(within) {
		f.add("body_starts_within_ms: %v, want at most %dms", took, within)
	}
}
