package main

import (
	"bytes"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestDevRefuses(t *testing.T) {
	for args, want := range map[string]string{
		"--nodes 65":     "--nodes 65 is out of range",
		"--nodes 0":      "--nodes 0 is out of range",
		"--backends 0":   "out of range",
		"--backends 65":  "out of range",
		"--duration -1s": "is negative",
		"more":           "unknown command",
	} {
		var stdout, stderr bytes.Buffer
		if code := run(append([]string{"dev"}, strings.Fields(args)...), &stdout, &stderr); code != exitUsage || !strings.Contains(stderr.String(), want) || stdout.Len() > 0 {
			t.Errorf("dev %s: exit %d, %q, want %d and %q", args, code, stderr.String(), exitUsage, want)
		}
	}
}

func TestDevUnderLoad(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	var stdout, stderr bytes.Buffer
	if code := run([]string{"dev", "--load", "--backends", "2", "--duration", "2500ms"}, &stdout, &stderr); code != 0 || stderr.Len() > 0 {
		t.Fatalf("exit %d: %s", code, stderr.String())
	}
	out := stdout.String()
	for _, want := range []string{"  proxy  http://127.0.0.1:", "  b2 ", "curl -N http://127.0.0.1:", " tokens/s", " streams finished, 0 broken", " 0 failed"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left in the temporary directory: %v, %v", left, err)
	}
}

// watched tells when something was written.
type watched struct{ first chan struct{} }

func (w watched) Write(p []byte) (int, error) {
	select {
	case w.first <- struct{}{}:
	default:
	}
	return len(p), nil
}

func TestDevEndsAtASignal(t *testing.T) {
	out := watched{make(chan struct{}, 1)}
	code := make(chan int, 1)
	go func() { code <- run([]string{"dev", "--duration", "1m"}, out, new(bytes.Buffer)) }()
	wait := func(what string, ch <-chan struct{}) {
		select {
		case <-ch:
		case <-time.After(20 * time.Second):
			t.Fatal(what)
		}
	}
	wait("nothing was printed", out.first)
	if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case c := <-code:
		if c != 0 {
			t.Errorf("exit %d", c)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("still running after SIGTERM")
	}
}
