package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"
)

// rulebook is the file of rules.
type rulebook struct {
	path    string
	alerts  []string
	metrics map[string]bool // that the rules speak of
}

func readRules(path string) (rulebook, error) {
	book := rulebook{metrics: map[string]bool{}}
	text, err := os.ReadFile(path)
	if err != nil {
		return book, fmt.Errorf("read the rules: %w", err)
	}
	if book.path, err = filepath.Abs(path); err != nil {
		return book, err
	}
	var file struct {
		Groups []struct {
			Rules []struct {
				Alert, Expr string
			}
		}
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		return book, fmt.Errorf("read the rules of %s: %w", path, err)
	}
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			book.alerts = append(book.alerts, r.Alert)
			for _, name := range regexp.MustCompile(`starling_[a-z_]+`).FindAllString(r.Expr, -1) {
				book.metrics[strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_count")] = true
			}
		}
	}
	return book, nil
}

// moment is what must be so at a picture of a film.
type moment struct {
	picture int
	fires   bool // each of the stage's alerts; else none of them
}

// check has promtool evaluate the rules over the film.
func (b rulebook) check(ctx context.Context, f *film, alerts []string, moments []moment, path string) error {
	script, err := yaml.Marshal(b.script(f, alerts, moments))
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, script, 0o600); err != nil {
		return err
	}
	if out, err := exec.CommandContext(ctx, "promtool", "test", "rules", path).CombinedOutput(); err != nil {
		return fmt.Errorf("promtool: %w: %.1500s", err, complaint(out))
	}
	for instance, text := range f.last {
		lint := exec.CommandContext(ctx, "promtool", "check", "metrics")
		lint.Stdin = strings.NewReader(text)
		if out, err := lint.CombinedOutput(); err != nil || len(bytes.TrimSpace(out)) > 0 {
			return fmt.Errorf("promtool check metrics of %s: %w: %.1000s", instance, err, out)
		}
	}
	return nil
}

// complaint is what promtool says, in one line.
func complaint(out []byte) string { return strings.Join(strings.Fields(string(out)), " ") }

func (b rulebook) script(f *film, alerts []string, moments []moment) any {
	type series struct {
		Series string `yaml:"series"`
		Values string `yaml:"values"`
	}
	type sample struct {
		Labels string  `yaml:"labels"`
		Value  float64 `yaml:"value"`
	}
	type question struct {
		Expr   string   `yaml:"expr"`
		At     string   `yaml:"eval_time"`
		Expect []sample `yaml:"exp_samples"`
	}
	var all []series
	for _, name := range slices.Sorted(maps.Keys(f.series)) {
		all = append(all, series{name, values(f.series[name])})
	}
	var asked []question
	for _, m := range moments {
		for _, alert := range alerts {
			q := question{Expr: fmt.Sprintf("count(ALERTS{alertname=%q,alertstate=\"firing\"}) > bool 0", alert), At: (time.Duration(m.picture) * interval).String()}
			if m.fires {
				q.Expect = []sample{{"{}", 1}}
			}
			asked = append(asked, q)
		}
	}
	return map[string]any{
		"rule_files": []string{b.path}, "evaluation_interval": interval.String(),
		"tests": []any{map[string]any{"interval": interval.String(), "input_series": all, "promql_expr_test": asked}},
	}
}

// values is a series in promtool's notation. Where it ends it becomes stale, as
// it does for a Prometheus whose scrape fails.
func values(series []float64) string {
	var text []string
	for i, v := range series {
		switch {
		case !math.IsNaN(v):
			text = append(text, strconv.FormatFloat(v, 'g', -1, 64))
		case i > 0 && !math.IsNaN(series[i-1]):
			text = append(text, "stale")
		default:
			text = append(text, "_")
		}
	}
	return strings.Join(text, " ")
}

func readAll(r io.Reader) string {
	text, _ := io.ReadAll(io.LimitReader(r, 4<<20)) // what is cut off does not parse
	return string(text)
}
