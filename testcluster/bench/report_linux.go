package main

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
)

// row is one line of the table: one thing that a case measures.
type row struct {
	Case    string
	Measure string // key in values
	Title   string
	Unit    string
	Added   bool // what the target adds to the direct way of the same round
	Must    []bar
}

// bar is what starling's figure must not exceed.
type bar struct {
	Against string // a peer, "better" for the better of both, or "" for Limit as it is
	Limit   float64
}

// values are the figures of one measurement by name.
type values map[string]float64

// waitedShare is the share of the measured time in which the proxy could have
// run and something else had its CPU. Above tooMuch the figures are doubtful: a
// proxy that is kept waiting finds its work in batches, which is cheaper.
const (
	waitedShare = "waited_share"
	tooMuch     = 0.1
)

// report collects the rounds of all targets.
type report struct {
	Conditions []string
	Targets    []string
	Rows       []row
	samples    map[[2]string][]values // by case and target, a round each; a void round is nil
	faults     []string
}

func newReport(conditions, targets []string, cases []benchCase) *report {
	r := &report{Conditions: conditions, Targets: targets, samples: map[[2]string][]values{}}
	for _, c := range cases {
		r.Rows = append(r.Rows, c.rows...)
	}
	return r
}

func (r *report) add(benchCase, target string, v values, err error) {
	key := [2]string{benchCase, target}
	if err != nil {
		r.faults = append(r.faults, fmt.Sprintf("%s, %s, round %d: %v", benchCase, target, len(r.samples[key])+1, err))
		v = nil
	}
	r.samples[key] = append(r.samples[key], v)
}

// rounds returns a target's figure of each round; ok is false if there is none
// or one is void, for then the row is void.
func (r *report) rounds(w row, target string) (figures []float64, ok bool) {
	mine, base := r.samples[[2]string{w.Case, target}], r.samples[[2]string{w.Case, direct}]
	for i, v := range mine {
		figure, there := v[w.Measure]
		if w.Added {
			if i >= len(base) || base[i] == nil {
				return nil, false
			}
			figure -= base[i][w.Measure]
		}
		if !there {
			return nil, false
		}
		figures = append(figures, figure)
	}
	return figures, len(figures) > 0
}

func (r *report) median(w row, target string) (float64, bool) {
	f, ok := r.rounds(w, target)
	return median(f), ok
}

func median(f []float64) float64 {
	if len(f) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(f))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

// spread is how far the rounds of the worst target lie apart, as a share of
// its median: differences below it say little.
func (r *report) spread(w row) (worst float64) {
	for _, t := range r.Targets {
		if f, ok := r.rounds(w, t); ok && median(f) > 0 {
			worst = max(worst, (slices.Max(f)-slices.Min(f))/median(f))
		}
	}
	return worst
}

// ratio is starling's median over a peer's.
func (r *report) ratio(w row, peer string) (float64, bool) {
	mine, ok := r.median(w, "starling")
	theirs, ok2 := r.peer(w, peer)
	return mine / theirs, ok && ok2 && theirs > 0
}

func (r *report) peer(w row, name string) (float64, bool) {
	if name != "better" {
		return r.median(w, name)
	}
	n, ok := r.median(w, "nginx")
	h, ok2 := r.median(w, "haproxy")
	return min(n, h), ok && ok2
}

// verdict is yes, NO, or "-" where starling or a peer is missing or void.
func (r *report) verdict(w row) string {
	if len(w.Must) == 0 {
		return ""
	}
	all := "yes"
	for _, m := range w.Must {
		figure, ok := r.ratio(w, m.Against)
		if m.Against == "" {
			figure, ok = r.median(w, "starling")
		}
		switch {
		case ok && figure > m.Limit:
			return "NO"
		case !ok:
			all = "-"
		}
	}
	return all
}

// met is whether every must that was measured is met, and none is unknown.
func (r *report) met() bool {
	return !slices.ContainsFunc(r.Rows, func(w row) bool { v := r.verdict(w); return v == "NO" || v == "-" })
}

func (b bar) String() string {
	if b.Against == "" {
		return fmt.Sprintf("≤ %g", b.Limit)
	}
	return fmt.Sprintf("≤ %.2f %s", b.Limit, b.Against)
}

func (w row) must() string {
	var s []string
	for _, m := range w.Must {
		s = append(s, m.String())
	}
	return strings.Join(s, ", ")
}

// text is the report for people.
func (r *report) text() string {
	var s strings.Builder
	for _, c := range r.Conditions {
		fmt.Fprintln(&s, c)
	}
	fmt.Fprintln(&s)
	t := tabwriter.NewWriter(&s, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "case\tmeasure\tunit\tstarling\tnginx\thaproxy\t/nginx\t/haproxy\tspread\tmust\tmet")
	for _, w := range r.Rows {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%.0f %%\t%s\t%s\n", w.Case, w.Title, w.Unit,
			r.cell(w, "starling"), r.cell(w, "nginx"), r.cell(w, "haproxy"),
			r.ratioCell(w, "nginx"), r.ratioCell(w, "haproxy"), 100*r.spread(w), w.must(), r.verdict(w))
	}
	t.Flush()
	for _, w := range r.Rows {
		if v, ok := r.median(row{Case: w.Case, Measure: w.Measure}, direct); ok && w.Added {
			fmt.Fprintf(&s, "%s, %s: direct (without a proxy) it is %s %s, taken off above\n", w.Case, w.Title, figure(v), w.Unit)
		}
	}
	if n, of := r.disturbed(); n > 0 {
		fmt.Fprintf(&s, "DISTURBED: in %d of %d measurements something else had the proxy's CPU for more than %g %% of the time\n", n, of, 100*tooMuch)
	}
	for _, f := range r.faults {
		fmt.Fprintln(&s, "VOID:", f)
	}
	return s.String()
}

func (r *report) disturbed() (n, of int) {
	for key, rounds := range r.samples {
		for _, v := range rounds {
			if share, measured := v[waitedShare]; measured && key[1] != direct {
				of++
				if share > tooMuch {
					n++
				}
			}
		}
	}
	return n, of
}

func (r *report) cell(w row, target string) string {
	if v, ok := r.median(w, target); ok {
		return figure(v)
	}
	if len(r.samples[[2]string{w.Case, target}]) > 0 {
		return "void"
	}
	return "-"
}

func (r *report) ratioCell(w row, peer string) string {
	if v, ok := r.ratio(w, peer); ok {
		return fmt.Sprintf("%.2f", v)
	}
	return "-"
}

// figure prints three or four digits that matter.
func figure(v float64) string {
	switch a := math.Abs(v); {
	case a >= 1000:
		return fmt.Sprintf("%.0f", v)
	case a >= 10:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.3f", v)
	}
}

// json is the report for programs, with every round of everything measured.
func (r *report) json() ([]byte, error) {
	type line struct {
		Case, Measure, Unit, Must, Met string
		Medians, Ratios                map[string]float64
		Spread                         float64
	}
	lines := []line{}
	for _, w := range r.Rows {
		l := line{Case: w.Case, Measure: w.Title, Unit: w.Unit, Must: w.must(), Met: r.verdict(w), Medians: map[string]float64{}, Ratios: map[string]float64{}, Spread: r.spread(w)}
		for _, t := range r.Targets {
			if v, ok := r.median(w, t); ok {
				l.Medians[t] = v
			}
			if v, ok := r.ratio(w, t); ok && t != "starling" {
				l.Ratios[t] = v
			}
		}
		lines = append(lines, l)
	}
	rounds := map[string]map[string][]values{}
	for key, v := range r.samples {
		if rounds[key[0]] == nil {
			rounds[key[0]] = map[string][]values{}
		}
		rounds[key[0]][key[1]] = v
	}
	return json.MarshalIndent(map[string]any{"conditions": r.Conditions, "rows": lines, "rounds": rounds, "void": r.faults}, "", "  ")
}
