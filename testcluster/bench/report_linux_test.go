package main

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
)

var errTest = errors.New("wrong body")

func cpuRow(must ...bar) row {
	return row{Case: "small", Measure: "cpu_us", Title: "CPU per request", Unit: "us", Must: must}
}

func filled(w row, figures map[string][]float64) *report {
	r := newReport([]string{"date: today"}, []string{"starling", "nginx", "haproxy"}, []benchCase{{name: w.Case, rows: []row{w}}})
	for target, f := range figures {
		for _, v := range f {
			r.add(w.Case, target, values{w.Measure: v}, nil)
		}
	}
	return r
}

func TestMedian(t *testing.T) {
	tests := []struct {
		in   []float64
		want float64
	}{{nil, 0}, {[]float64{7}, 7}, {[]float64{9, 1}, 5}, {[]float64{100, 1, 2}, 2}, {[]float64{4, 1, 3, 2}, 2.5}}
	for _, tt := range tests {
		before := slices.Clone(tt.in)
		if got := median(tt.in); got != tt.want || !slices.Equal(tt.in, before) {
			t.Errorf("median(%v) = %v, want %v and the order kept", before, got, tt.want)
		}
	}
}

func TestVerdicts(t *testing.T) {
	full := map[string][]float64{"starling": {9, 100, 8}, "nginx": {10, 10, 10}, "haproxy": {12, 12, 12}}
	noPeer := map[string][]float64{"starling": {9}, "nginx": {10}}
	noStarling := map[string][]float64{"nginx": {10}, "haproxy": {12}}
	tests := []struct {
		name    string
		figures map[string][]float64
		must    []bar
		want    string
	}{
		{"met", full, []bar{{"nginx", .90}, {"haproxy", .75}}, "yes"},
		{"one of two missed", full, []bar{{"nginx", .89}, {"haproxy", .75}}, "NO"},
		{"better of both", full, []bar{{"better", .90}}, "yes"},
		{"better of both missed", full, []bar{{"better", .89}}, "NO"},
		{"absolute", full, []bar{{"", 9}}, "yes"},
		{"absolute missed", full, []bar{{"", 8.9}}, "NO"},
		{"a peer is missing", noPeer, []bar{{"nginx", .90}, {"haproxy", .75}}, "-"},
		{"missed even so", noPeer, []bar{{"haproxy", .75}, {"nginx", .80}}, "NO"},
		{"starling is missing", noStarling, []bar{{"nginx", 1}}, "-"},
		{"nothing to meet", full, nil, ""},
	}
	for _, tt := range tests {
		w := cpuRow(tt.must...)
		r := filled(w, tt.figures)
		if got := r.verdict(w); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
		if want := tt.want == "yes" || tt.want == ""; r.met() != want {
			t.Errorf("%s: met() = %v", tt.name, r.met())
		}
	}
}

func TestOneWrongAnswerVoidsTheRow(t *testing.T) {
	w := cpuRow(bar{"nginx", 1})
	r := filled(w, map[string][]float64{"starling": {9, 9}, "nginx": {10, 10, 10}})
	r.add("small", "starling", values{"cpu_us": 1}, errTest)
	if r.verdict(w) != "-" || r.met() {
		t.Errorf("verdict %q with a void round", r.verdict(w))
	}
	text := r.text()
	for _, want := range []string{"date: today", " void ", "VOID: small, starling, round 3: wrong body"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
}

func TestAddedIsTakenRoundByRound(t *testing.T) {
	w := cpuRow(bar{"haproxy", 1})
	w.Added = true
	r := filled(w, map[string][]float64{"direct": {10, 50, 10}, "starling": {30, 60, 31}, "haproxy": {31, 81, 32}})
	if got, ok := r.median(w, "starling"); !ok || got != 20 {
		t.Errorf("starling adds %v, want 20: the median of 20, 10 and 21", got)
	}
	if got, _ := r.ratio(w, "haproxy"); got != 20./22 {
		t.Errorf("ratio %v, want 20/22", got)
	}
	r.samples[[2]string{"small", "direct"}][1] = nil
	if _, ok := r.median(w, "starling"); ok {
		t.Error("stands although a direct round is void")
	}
}

func TestDisturbanceIsTold(t *testing.T) {
	w := cpuRow()
	r := filled(w, map[string][]float64{"starling": {10}})
	if strings.Contains(r.text(), "DISTURBED") {
		t.Error("told without a reason")
	}
	r.add("small", "starling", values{"cpu_us": 10, waitedShare: tooMuch / 2}, nil)
	r.add("small", "starling", values{"cpu_us": 10, waitedShare: tooMuch * 2}, nil)
	if !strings.Contains(r.text(), "DISTURBED: in 1 of 2") {
		t.Errorf("not told in:\n%s", r.text())
	}
}

func TestSpreadIsOfTheWorstTarget(t *testing.T) {
	w := cpuRow()
	r := filled(w, map[string][]float64{"starling": {10, 10}, "nginx": {8, 10, 14}})
	if got := r.spread(w); got != .6 {
		t.Errorf("spread %v, want 0.6", got)
	}
}

func TestReportForPrograms(t *testing.T) {
	w := cpuRow(bar{"nginx", 1})
	r := filled(w, map[string][]float64{"starling": {9}, "nginx": {10}})
	p, err := r.json()
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Rows []struct {
			Met     string
			Medians map[string]float64
			Ratios  map[string]float64
		}
		Rounds map[string]map[string][]values
	}
	if err := json.Unmarshal(p, &got); err != nil {
		t.Fatal(err)
	}
	line := got.Rows[0]
	if line.Met != "yes" || line.Medians["starling"] != 9 || line.Ratios["nginx"] != .9 || got.Rounds["small"]["nginx"][0]["cpu_us"] != 10 {
		t.Errorf("got %s", p)
	}
}

func TestFlags(t *testing.T) {
	good := map[string]options{
		"-quick":                        {rounds: 2, streams: 1000, quick: true},
		"-quick -rounds 3 -streams 500": {rounds: 3, streams: 500, quick: true},
		"-rounds 7":                     {rounds: 7, streams: 4000},
	}
	for args, want := range good {
		o, cases, err := parse(strings.Fields(args), t.Output())
		if err != nil || o.rounds != want.rounds || o.streams != want.streams || o.quick != want.quick || len(cases) != len(allCases()) {
			t.Errorf("%s: %+v, %d cases, err %v", args, o, len(cases), err)
		}
	}
	for _, args := range []string{"-rounds 0", "-rounds 51", "-streams 9001", "-case nothing", "-case small,", "-wrong", "more"} {
		if _, _, err := parse(strings.Fields(args), t.Output()); err == nil {
			t.Errorf("%s: accepted", args)
		}
	}
	_, cases, err := parse([]string{"-case", "gone,small"}, t.Output())
	if err != nil || len(cases) != 2 || cases[0].name != "small" || cases[1].name != "gone" {
		t.Errorf("two cases chosen: %v, %v", cases, err)
	}
}
