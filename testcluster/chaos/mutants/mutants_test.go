package main

import (
	"errors"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/starling-lb/starling/testcluster/chaos"
	"github.com/starling-lb/starling/testcluster/chaos/history"
	"github.com/starling-lb/starling/testcluster/chaos/judge"
)

// TestPatchesApply: each mutant stands where it says, and is Go. Where it fails,
// the code that it is planted in was changed: plant it anew in list.go.
func TestPatchesApply(t *testing.T) {
	names := map[string]bool{}
	for _, m := range mutants() {
		files, err := m.patched("../../..")
		if err != nil {
			t.Error(err)
			continue
		}
		for name, text := range files {
			if _, err := parser.ParseFile(token.NewFileSet(), name, text, parser.AllErrors); err != nil {
				t.Errorf("mutant %s: %v", m.name, err)
			}
		}
		if names[m.name] || m.promise == "" || m.scenario == "" || len(files) == 0 {
			t.Errorf("mutant %s: twice there, or without a promise, a scenario or edits", m.name)
		}
		names[m.name] = true
	}
	if len(names) < 12 {
		t.Errorf("%d mutants, want at least 12", len(names))
	}
}

// TestEveryVerdictHasItsBug: there is no checker that no planted bug was made for.
func TestEveryVerdictHasItsBug(t *testing.T) {
	planted := map[string]bool{}
	for _, m := range mutants() {
		planted[m.promise] = true
	}
	for _, v := range judge.Judge(&history.Run{}) {
		if !planted[v.Promise] {
			t.Errorf("no bug is planted for %s: %s", v.Promise, v.Words)
		}
		delete(planted, v.Promise)
	}
	if len(planted) > 0 {
		t.Errorf("bugs are planted for what is no verdict: %v", planted)
	}
}

// TestPatchesAreExact: a text that is not there, or twice, is an error.
func TestPatchesAreExact(t *testing.T) {
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "a.go"), []byte("one two two"), 0o600); err != nil {
		t.Fatal(err)
	}
	for old, ok := range map[string]bool{"one": true, "two": false, "three": false} {
		_, err := mutant{name: "m", edits: []edit{{"a.go", old, "x"}}}.patched(root)
		if (err == nil) != ok || err != nil && !errors.Is(err, errPatch) {
			t.Errorf("%s: %v", old, err)
		}
	}
	if _, err := (mutant{edits: []edit{{"b.go", "one", "x"}}}).patched(root); err == nil {
		t.Error("a file that is not there")
	}
	files, err := mutant{edits: []edit{{"a.go", "one", "three"}, {"a.go", "three", "four"}}}.patched(root)
	if err != nil || files["a.go"] != "four two two" {
		t.Errorf("%v, %v", files, err)
	}
}

func TestVerdictIsRead(t *testing.T) {
	for _, c := range []struct {
		promise, text string
		well          bool
		said          string
		ok            bool
	}{
		{"P1", "word\nkill: broken: P1, P3\nmore", false, "found: P1, P3", true},
		{"P1", "word\nkill: broken: P10\n", false, "broken: P10", false},
		{"P1", "word\nkill: all promises held\n", true, "all held", false},
		{"P1", "word\nit could not be made: broken: P1\n", false, "no verdict", false},
		{"", "word\nkill: all promises held\n", true, "held", true},
		{"", "word\nkill: all promises held\nthe harness: members", false, "trouble", false},
		{"", "word\nkill: broken: P1\n", false, "broken: P1", false},
	} {
		said, err := verdict(mutant{promise: c.promise, scenario: "kill"}, c.text, c.well)
		if said != c.said || (err == nil) != c.ok || err != nil && !errors.Is(err, errMissed) {
			t.Errorf("%q of %q: %s, %v", c.text, c.promise, said, err)
		}
	}
	if !strings.Contains(goTool(), "go") {
		t.Error(goTool())
	}
}

// TestNoSuchMutant: a name that none has plants nothing, and does not pass for that.
func TestNoSuchMutant(t *testing.T) {
	for name, want := range map[string]error{"lost-bindnig": errNone, "lost-binding": nil} {
		if err := run(t.Context(), name, true); !errors.Is(err, want) {
			t.Errorf("-run %s: got %v, want %v", name, err, want)
		}
	}
}

// TestScenarios: what mutants play can be played.
func TestScenarios(t *testing.T) {
	for _, m := range append(sound(), mutants()...) {
		s, err := chaos.Load("scenarios/" + m.scenario + ".yaml")
		if err != nil || m.level == "" && s.Level == chaos.Processes {
			t.Errorf("mutant %s: %s, %v", m.name, s.Level, err)
		}
	}
}
