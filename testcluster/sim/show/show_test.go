package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gonum.org/v1/plot/plotter"

	"github.com/starling-lb/starling/testcluster/sim"
)

func TestOptions(t *testing.T) {
	for _, bad := range [][]string{{"-seeds", "0"}, {"-seeds", "101"}, {"-only", "nothing"}, {"stray"}} {
		var o options
		if err := o.parse(bad); !errors.Is(err, errUsage) {
			t.Errorf("%v: %v, want %v", bad, err, errUsage)
		}
	}
	var o options
	if err := o.parse([]string{"-quick", "-only", "goals"}); err != nil || o.seeds != 1 || o.docs != "" {
		t.Errorf("the short form has %+v, %v", o, err)
	}
}

// TestInsert: each part replaces what stood between its marks, and nothing else.
func TestInsert(t *testing.T) {
	file := filepath.Join(t.TempDir(), "balance.md")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("before\n<!-- sim:a -->\nold\nrows\n<!-- /sim:a -->\nbetween\n<!-- sim:b -->\n<!-- /sim:b -->\nafter\n")
	if err := insert(file, map[string]string{"a": "new\n", "b": "| b |\n"}); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(file)
	want := "before\n<!-- sim:a -->\nnew\n<!-- /sim:a -->\nbetween\n<!-- sim:b -->\n| b |\n<!-- /sim:b -->\nafter\n"
	if err != nil || string(got) != want {
		t.Errorf("the file has %q, %v; want %q", got, err, want)
	}
	write("<!-- sim:a -->\nnever closed\n")
	if err := insert(file, map[string]string{"a": "x\n"}); err == nil || !strings.Contains(err.Error(), "/sim:a") {
		t.Errorf("a mark is missing, and the error is %v", err)
	}
}

// TestDocumentHasItsPlaces: docs/balance.md can take every part.
func TestDocumentHasItsPlaces(t *testing.T) {
	text, err := os.ReadFile("../../../docs/balance.md")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "balance.md")
	if err := os.WriteFile(file, text, 0o644); err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, n := range names() {
		all[n] = "x\n"
	}
	if err := insert(file, all); err != nil {
		t.Error(err)
	}
}

func TestMarkdown(t *testing.T) {
	tab := table{words: "Words:", head: []string{"a", "b"}}
	tab.add("x", num(0.0012))
	tab.add("y", num(123.4))
	want := "Words:\n\n| a | b |\n|---|---|\n| x | 0.001 |\n| y | 123 |\n"
	if got := tab.markdown(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestPicture: what is drawn is well-formed SVG that names its curves.
func TestPicture(t *testing.T) {
	p := picture{file: "p.svg", title: "A title", x: "x", y: "y", logX: true, logY: true, dots: true, lines: []line{
		{"one", plotter.XYs{{X: 1, Y: 1}, {X: 10, Y: 100}}}, {sim.Oracle, plotter.XYs{{X: 1, Y: 2}, {X: 10, Y: 3}}},
	}}
	dir := t.TempDir()
	if err := p.draw(dir); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(filepath.Join(dir, p.file))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var text strings.Builder
	for in := xml.NewDecoder(f); ; {
		tok, err := in.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if s, ok := tok.(xml.CharData); ok {
			text.Write(s)
		}
	}
	for _, want := range []string{p.title, "one", sim.Oracle} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the picture does not say %q", want)
		}
	}
}
