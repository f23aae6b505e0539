package yamlstrict

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Fault is one thing that is wrong with a file, and what would be right.
type Fault struct {
	File string
	Line int
	Key  string
	Text string
}

func (f Fault) String() string { return fmt.Sprintf("%s:%d: %s: %s", f.File, f.Line, f.Key, f.Text) }

const (
	maxFaults = 100 // of one file; nobody reads more
	maxShown  = 60  // bytes of a value or name that a fault repeats
)

// Report collects the faults of one file.
type Report struct {
	file    string
	lines   map[string]int // where a key stands
	wrong   map[string]bool
	within  map[string]bool // some key below is wrong
	faults  []Fault
	dropped int
}

func newReport(file string) *Report {
	return &Report{file: file, lines: map[string]int{}, wrong: map[string]bool{}, within: map[string]bool{}}
}

// Fault reports what a validator found at a key such as listeners[0].address;
// a key that the file leaves out gets the line of what it would stand in. One
// fault is enough for a key: what follows from an earlier one is passed over.
func (r *Report) Fault(key, format string, args ...any) {
	if r.Wrong(key) || r.within[key] {
		return
	}
	r.add(r.line(key), key, format, args...)
	r.wrong[key] = true
}

// Wrong tells whether the file is wrong at the key or at one above it, so that
// its value is not what the file meant.
func (r *Report) Wrong(key string) bool {
	for ; key != ""; key = parent(key) {
		if r.wrong[key] {
			return true
		}
	}
	return false
}

// Faults lists what was found, by line. It is bounded; a last entry says how
// many more there are.
func (r *Report) Faults() []Fault {
	out := slices.Clone(r.faults)
	slices.SortStableFunc(out, func(a, b Fault) int { return cmp.Compare(a.Line, b.Line) })
	if r.dropped > 0 {
		last := out[len(out)-1].Line
		out = append(out, Fault{r.file, last, fileKey, fmt.Sprintf("%d more faults are not listed; mend these first", r.dropped)})
	}
	return out
}

// bad reports a fault of the walk: whatever validation says later about the
// key and those around it follows from this one.
func (r *Report) bad(at place, format string, args ...any) {
	r.add(r.line(at.key), cmp.Or(at.key, fileKey), format, args...)
	r.spoil(at.key)
}

func (r *Report) spoil(key string) {
	r.wrong[key] = true
	for up := parent(key); up != ""; up = parent(up) {
		r.within[up] = true
	}
}

func (r *Report) add(line int, key, format string, args ...any) {
	if len(r.faults) == maxFaults {
		r.dropped++
		return
	}
	r.faults = append(r.faults, Fault{r.file, line, key, fmt.Sprintf(format, args...)})
}

func (r *Report) line(key string) int {
	for ; key != ""; key = parent(key) {
		if n, ok := r.lines[key]; ok {
			return n
		}
	}
	return 1
}

// parent is the key above: a.b of a.b[0] and of a.b.c, "" of a.
func parent(key string) string { return key[:max(0, strings.LastIndexAny(key, ".["))] }

// quote shows a text in a fault, on one line and cut to a bearable length.
func quote(s string) string {
	if len(s) > maxShown {
		return strconv.Quote(strings.ToValidUTF8(s[:maxShown], "")) + "..."
	}
	return strconv.Quote(s)
}
