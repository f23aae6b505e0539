package main

import (
	"fmt"
	"os"
	"strings"
)

// table is figures for people: a line of words, a head and rows.
type table struct {
	words string
	head  []string
	rows  [][]string
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

func (t table) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", t.words)
	if len(t.head) == 0 {
		return b.String()
	}
	fmt.Fprintf(&b, "\n| %s |\n|%s\n", strings.Join(t.head, " | "), strings.Repeat("---|", len(t.head)))
	for _, r := range t.rows {
		fmt.Fprintf(&b, "| %s |\n", strings.Join(r, " | "))
	}
	return b.String()
}

// num writes a figure with about three digits.
func num(x float64) string {
	switch {
	case x < 0.005:
		return fmt.Sprintf("%.3f", x)
	case x < 10:
		return fmt.Sprintf("%.2f", x)
	case x < 100:
		return fmt.Sprintf("%.1f", x)
	}
	return fmt.Sprintf("%.0f", x)
}

// insert puts each text between the marks of its name in a file.
func insert(file string, texts map[string]string) error {
	old, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("the document that gets the tables: %w", err)
	}
	doc := string(old)
	for name, text := range texts {
		from, to := "<!-- sim:"+name+" -->\n", "<!-- /sim:"+name+" -->\n"
		before, rest, found := strings.Cut(doc, from)
		_, after, ended := strings.Cut(rest, to)
		if !found || !ended {
			return fmt.Errorf("%s has no place for part %s: write the lines %q and %q", file, name, strings.TrimSpace(from), strings.TrimSpace(to))
		}
		doc = before + from + text + to + after
	}
	return os.WriteFile(file, []byte(doc), 0o644)
}
