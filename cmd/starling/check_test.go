package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/starling-lb/starling/node"
)

const testdata = "../../node/testdata"

// starling runs the program in this process.
func starling(args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = run(args, &out, &errs)
	return code, out.String(), errs.String()
}

func TestCheckBroken(t *testing.T) {
	t.Chdir(filepath.Join(testdata, "broken"))
	files, err := filepath.Glob("*.yaml")
	if err != nil || len(files) < 20 {
		t.Fatalf("%d broken files (%v), want 20 or more", len(files), err)
	}
	for _, file := range files {
		want, err := os.ReadFile(strings.TrimSuffix(file, ".yaml") + ".want")
		if err != nil {
			t.Error(err)
			continue
		}
		if code, out, errs := starling("check", "--config", file, "--print"); code != 2 || out != "" || errs != string(want) {
			t.Errorf("check %s: exit %d, stdout %q, stderr\n%s\nwant exit 2, no stdout, stderr\n%s", file, code, out, errs, want)
		}
	}
}

func TestCheckGood(t *testing.T) {
	full := filepath.Join(testdata, "full.yaml")
	if code, out, errs := starling("check", "--config", full); code != 0 || out != full+": ok\n" || errs != "" {
		t.Errorf("exit %d, stdout %q, stderr %q; want 0 and only ok", code, out, errs)
	}
	hinted := filepath.Join(t.TempDir(), "hinted.yaml")
	text := "listeners: [{address: 'a:1'}]\npools: {llm: {backends: ['http://b:1'], timeouts: {stream_total: 1h}}}\n"
	if err := os.WriteFile(hinted, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, errs := starling("check", "--config", hinted)
	if code != 0 || !strings.HasPrefix(out, hinted+": ok\n"+hinted+": hint: pools.llm.timeouts.stream_total: ") || errs != "" {
		t.Errorf("exit %d, stdout %q, stderr %q; want 0, ok and one hint", code, out, errs)
	}
}

// TestCheckPrint: what is printed is a file, hints included, and says the same.
func TestCheckPrint(t *testing.T) {
	code, out, errs := starling("check", "--print", "--config", filepath.Join(testdata, "full.yaml"))
	if code != 0 || errs != "" {
		t.Fatalf("exit %d, stderr %q; want 0", code, errs)
	}
	want, err := node.Load(filepath.Join(testdata, "full.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := node.Parse("printed.yaml", []byte(out), func(string) (string, bool) { return "", false })
	if err != nil || got.Hash() != want.Hash() || got.Node.Name != want.Node.Name {
		t.Errorf("%v\nprinted\n%s", err, out)
	}
}

func TestUsage(t *testing.T) {
	for _, tt := range []struct{ args, want string }{
		{"chekc", `unknown command "chekc"`},
		{"check", `required flag(s) "config" not set`},
		{"check", "starling: see starling check --help\n"},
		{"backend weight b1", "starling: see starling backend weight --help\n"},
		{"chekc", "starling: see starling --help\n"},
		{"check --config", "flag needs an argument"},
		{"check --confg x", "unknown flag: --confg"},
		{"check x --config y", `unknown command "x"`},
		{"check --config y --print=maybe", "invalid argument"},
		{"version now", `unknown command "now"`},
		{"--loud", "unknown flag: --loud"},
	} {
		code, out, errs := starling(strings.Fields(tt.args)...)
		if code != 2 || out != "" || !strings.HasPrefix(errs, "starling: ") || !strings.Contains(errs, tt.want) || strings.Count(errs, tt.want) != 1 {
			t.Errorf("%q: exit %d, stdout %q, stderr %q; want exit 2 and %q once", tt.args, code, out, errs, tt.want)
		}
	}
}

func TestUnreadableFileIsUsage(t *testing.T) {
	code, _, errs := starling("check", "--config", "no-such.yaml")
	if want := `no-such.yaml:1: yaml: "no-such.yaml" cannot be read: `; code != 2 || !strings.HasPrefix(errs, want) {
		t.Errorf("exit %d, stderr %q; want 2 and %q", code, errs, want)
	}
}

func TestHelp(t *testing.T) {
	for _, args := range [][]string{{}, {"--help"}, {"help", "check"}, {"check", "--help"}} {
		if code, out, errs := starling(args...); code != 0 || !strings.Contains(out, "Usage:") || errs != "" {
			t.Errorf("%q: exit %d, stdout %q, stderr %q; want 0 and help", args, code, out, errs)
		}
	}
}

func TestVersion(t *testing.T) {
	code, out, errs := starling("version")
	if flagged, said, _ := starling("--version"); flagged != 0 || said != out {
		t.Errorf("--version: exit %d, %q; version says %q", flagged, said, out)
	}
	if code != 0 || errs != "" || !regexp.MustCompile(`^starling \S+\ncommit \S+\ngo\S+.*\n$`).MatchString(out) {
		t.Errorf("exit %d, stdout %q, stderr %q", code, out, errs)
	}
}

func TestReport(t *testing.T) {
	faults := &node.FaultsError{Faults: []node.Fault{{File: "f", Line: 3, Key: "k", Text: "is wrong; write it right"}}}
	for _, tt := range []struct {
		err   error
		began bool
		code  int
		says  string
	}{
		{nil, true, 0, ""},
		{errors.New("port taken"), true, 1, "starling: port taken\n"},
		{fmt.Errorf("serve: %w", &exit{3, errors.New("streams were cut")}), true, 3, "starling: serve: streams were cut\n"},
		{fmt.Errorf("serve: %w", faults), true, 2, "f:3: k: is wrong; write it right\n"},
		{errors.New("unknown flag"), false, 2, "starling: unknown flag\nstarling: see starling --help\n"},
	} {
		var errs bytes.Buffer
		if code := report(newRoot(), tt.err, tt.began, &errs); code != tt.code || errs.String() != tt.says {
			t.Errorf("%v: exit %d, %q; want %d, %q", tt.err, code, errs.String(), tt.code, tt.says)
		}
	}
}
