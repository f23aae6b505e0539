package chaos

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// standStill is a process that stands still, and has a file of a directory open.
func standStill(t *testing.T, dir string) *exec.Cmd {
	t.Helper()
	file := filepath.Join(dir, "n1.yaml")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("tail", "-f", file)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	return cmd
}

// TestHeirsAreEnded: a process that the harness has noted, and that stands still, is
// ended with it by who tidies up; another one that has a noted number by now is not.
func TestHeirsAreEnded(t *testing.T) {
	dir, elsewhere := t.TempDir(), t.TempDir()
	ours, other := standStill(t, dir), standStill(t, elsewhere)
	for _, cmd := range []*exec.Cmd{ours, other} {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(heirPrefix, cmd.Process.Pid)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := sweepAfter(dir, strings.NewReader("")); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the directory is there: %v", err)
	}
	if err := ours.Wait(); err == nil || ours.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Errorf("the heir ended by %v", err)
	}
	if err := other.Process.Signal(syscall.SIGTERM); err != nil { // what has ended takes signals until it is waited for
		t.Fatal(err)
	}
	if err := other.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := other.Wait(); other.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGTERM {
		t.Errorf("another process ended before it was told to: %v", err)
	}
}

// TestProgramIsReplaced: a node's path leads to an older program, and then to this one
// with the arguments that it wants, whatever is in them.
func TestProgramIsReplaced(t *testing.T) {
	dir := t.TempDir()
	if err := putOld(dir, "n1", "echo"); err != nil {
		t.Fatal(err)
	}
	run := func() string {
		out, err := exec.Command(programOf(dir, "n1"), "serve", "--config", "f").CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}
	if got := run(); got != "serve --config f\n" {
		t.Errorf("the older one: %q", got)
	}
	if err := putNew(dir, "n1", []string{"/bin/echo", "chaos-node", "it's $HOME; a file", "0"}); err != nil {
		t.Fatal(err)
	}
	if got := run(); got != "chaos-node it's $HOME; a file 0\n" {
		t.Errorf("this one: %q", got)
	}
	if err := putOld(dir, "n1", filepath.Join(dir, "none")); err == nil {
		t.Error("a program that is not there is taken")
	}
}
