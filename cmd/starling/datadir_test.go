package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestOneDataDirectoryOneProcess: a second process on a data directory is refused, and
// the first one serves on; so is a directory that a newer program has written, which
// is left as it is.
func TestOneDataDirectoryOneProcess(t *testing.T) {
	p := newProcess(t)
	p.configure(`node: {name: n1, data_dir: %s/data}
admin: {address: 127.0.0.1:0}
listeners:
  - {address: 127.0.0.1:0, routes: [{pool: p}]}
pools:
  p: {backends: [{id: b1, url: http://127.0.0.1:1}]}
`, p.dir)
	p.start()
	second := func(want string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), dayLimit)
		defer cancel()
		c := exec.CommandContext(ctx, p.program, "serve", "--config", p.config)
		c.Env = append(os.Environ(), asStarling+"=1")
		said, err := c.CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != exitError || !strings.Contains(string(said), want) {
			t.Errorf("%v, it says %q, want exit 1 and %q", err, said, want)
		}
	}
	second("another starling has it")
	if code, _, errs := starling("status", "--admin", p.admin); code != 0 {
		t.Errorf("the first one after that: %s", errs)
	}
	if err := syscall.Kill(p.pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-p.ended
	path := filepath.Join(p.dir, "data", "starling.json")
	newer := []byte(`{"format": 2, "node_id": "x", "more": "that is not known here"}`)
	if err := os.WriteFile(path, newer, 0o600); err != nil {
		t.Fatal(err)
	}
	second("has format 2, this starling knows up to 1")
	if is, err := os.ReadFile(path); err != nil || string(is) != string(newer) {
		t.Errorf("the newer file is now %q, %v", is, err)
	}
}
