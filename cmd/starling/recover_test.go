package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/starling-lb/starling/node"
)

// TestRecover: it says what may be lost, asks, and changes nothing unless told to;
// a node that runs, or was of no cluster, is refused.
func TestRecover(t *testing.T) {
	dir := t.TempDir()
	config := filepath.Join(dir, "starling.yaml")
	text := fmt.Sprintf("node: {data_dir: %s}\nadmin: {address: '127.0.0.1:0'}\nlisteners: [{address: '127.0.0.1:0'}]\nshards: {count: 2}\npools: {llm: {backends: ['http://127.0.0.1:1'], sticky: {key: ['header:X-Session-ID']}}}\n", filepath.Join(dir, "data"))
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, errs := starling("recover", "--config", config, "--yes"); code != 1 || !strings.Contains(errs, "the node was of no cluster") {
		t.Errorf("a new directory: exit %d, %s", code, errs)
	}
	serve := func(while func()) {
		t.Helper()
		cfg, err := node.Load(config)
		if err != nil {
			t.Fatal(err)
		}
		n, err := node.New(cfg, node.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := n.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		while()
		if err := n.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	serve(func() {
		if code, _, errs := starling("recover", "--config", config, "--yes"); code != 1 || !strings.Contains(errs, "lock") {
			t.Errorf("a node that runs: exit %d, %s", code, errs)
		}
	})
	file := filepath.Join(dir, "data", "map.json")
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	code, out, errs := starling("recover", "--config", config) // nobody is there to type yes
	if after, _ := os.ReadFile(file); code != 1 || !strings.Contains(out, "What was agreed after that revision is lost") || !strings.Contains(errs, "nothing was changed") || string(after) != string(before) {
		t.Errorf("without a yes: exit %d, %s%s", code, out, errs)
	}
	if code, out, errs := starling("recover", "--config", config, "--yes"); code != 0 || !strings.HasSuffix(out, "Done. Start this node now.\n") || !strings.Contains(out, filepath.Join(dir, "data", "recovery.json")) || !strings.Contains(out, "drops the order") {
		t.Errorf("exit %d, %s%s", code, out, errs)
	}
	serve(func() {}) // it comes up
}

func TestConfirm(t *testing.T) {
	for in, want := range map[string]bool{"yes\n": true, "yes": true, "y\n": false, "\n": false, "": false} {
		if got := confirm(strings.NewReader(in), new(strings.Builder)); got != want {
			t.Errorf("%q is taken for %v", in, got)
		}
	}
}
