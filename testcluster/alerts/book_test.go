package main

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"
)

const docs = "../../docs/"

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(docs + path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestBook: every alert has its page, is staged, and speaks of metrics that there are.
func TestBook(t *testing.T) {
	book, err := readRules(docs + "operations/alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	if len(book.alerts) < 16 {
		t.Fatalf("%d alerts were read", len(book.alerts))
	}
	rules, pages := read(t, "operations/alerts.yml"), read(t, "operations/alerts.md")
	staged := map[string]bool{}
	for _, s := range stages() {
		for _, a := range s.alerts {
			staged[a] = true
		}
	}
	for _, alert := range book.alerts {
		if !strings.Contains(pages, "\n## "+alert+"\n") {
			t.Errorf("%s has no page in alerts.md", alert)
		}
		if !strings.Contains(rules, "runbook: docs/operations/alerts.md#"+strings.ToLower(alert)+"\n") {
			t.Errorf("%s does not name its page", alert)
		}
		if !staged[alert] {
			t.Errorf("nobody stages %s", alert)
		}
	}
	if got := strings.Count(pages, "\n## "); got != len(book.alerts) {
		t.Errorf("alerts.md has %d pages for %d alerts", got, len(book.alerts))
	}
	exist(t, rules)
}

// TestDashboard: its panels speak of metrics that there are, none twice.
func TestDashboard(t *testing.T) {
	text := read(t, "operations/grafana.json")
	var board struct {
		Panels []struct {
			ID      int
			Title   string
			GridPos struct{ X, Y, W, H int }
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal([]byte(text), &board); err != nil {
		t.Fatal(err)
	}
	ids := map[int]bool{}
	for _, p := range board.Panels {
		if ids[p.ID] || p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("%s: id %d twice, or beyond the right edge", p.Title, p.ID)
		}
		ids[p.ID] = true
	}
	if len(ids) < 20 {
		t.Errorf("%d panels", len(ids))
	}
	exist(t, text)
}

// exist holds the metrics of a text against the reference, which another test
// holds against a node.
func exist(t *testing.T, text string) {
	t.Helper()
	reference := read(t, "reference/metrics.md")
	names := regexp.MustCompile(`starling_[a-z_]+`).FindAllString(text, -1)
	if len(names) < 16 {
		t.Errorf("%d metrics were found", len(names))
	}
	for _, name := range names {
		if name = strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_count"); !strings.Contains(reference, "| `"+name+"` |") {
			t.Errorf("there is no metric %s", name)
		}
	}
}
