package chaos_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/starling-lb/starling/testcluster/chaos"
)

// harness runs until it is killed.
func harness() {
	s, err := chaos.Load(os.Args[2])
	if err == nil {
		_, err = chaos.Run(context.Background(), s, chaos.Options{Program: program(), Out: os.Stdout})
	}
	fmt.Println("ended:", err)
}

// children are the processes of nodes, and the one that tidies up, that work in a
// directory.
func children(t *testing.T, dir string) (pids []int) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range all {
		line, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(line, []byte(nodeArgument)) || !bytes.Contains(line, []byte(dir)) {
			continue // it may have ended meanwhile
		}
		if pid, err := strconv.Atoi(strings.Split(path, "/")[2]); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// TestHarnessDies: a harness is killed with kill -9, two of its nodes standing still,
// one of which is no child of its: its nodes die, and its directory is removed.
func TestHarnessDies(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "long.yaml")
	if err := os.WriteFile(path, []byte("duration: 1h\nsteps: [{at: 0s, fault: hand-over, target: n2}, {at: 4s, for: 1h, fault: pause, target: \"n2,n3\"}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	tmp := filepath.Join(dir, "tmp")
	if err := os.Mkdir(tmp, 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], harnessArgument, path)
	cmd.Env = append(os.Environ(), "TMPDIR="+tmp)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	lines := bufio.NewScanner(out)
	paused := false
	for !paused && lines.Scan() {
		t.Log(lines.Text())
		paused = strings.Contains(lines.Text(), "pause n2 n3")
	}
	heirs, err := filepath.Glob(filepath.Join(tmp, "*", "heir-*")) // the harness notes those that are no children of its
	if n := len(children(t, tmp)); !paused || len(heirs) != 1 || n < 4 {
		t.Fatalf("paused: %v; handed over: %v, %v; %d processes, want three nodes, an elder that ends, and the one that tidies up", paused, heirs, err, n)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		left, err := os.ReadDir(tmp)
		if err != nil {
			t.Fatal(err)
		}
		pids := children(t, tmp)
		if len(left) == 0 && len(pids) == 0 {
			return
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("left: %v and processes %v", left, pids)
		}
	}
}
