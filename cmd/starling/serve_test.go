package main

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// printed is what a command has written so far.
type printed struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (p *printed) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(b)
}

func (p *printed) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

// soon waits until look finds nothing wrong.
func soon(t *testing.T, look func() string) {
	t.Helper()
	within(t, 20*time.Second, look)
}

func within(t *testing.T, limit time.Duration, look func() string) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for by := time.Now().Add(limit); ; <-tick.C {
		wrong := look()
		if wrong == "" {
			return
		}
		if time.Now().After(by) {
			t.Fatalf("still: %s", wrong)
		}
	}
}

func lines(path string) int {
	text, _ := os.ReadFile(path)
	return bytes.Count(text, []byte("\n"))
}

// Whoever rotates logs moves the file away and says SIGUSR1: the lines from then
// on are in a new file, none is lost, and a file that cannot be opened leaves
// the old one in use.
func TestAccessLogIsReopened(t *testing.T) {
	dir := t.TempDir()
	log, config := filepath.Join(dir, "log", "access.log"), filepath.Join(dir, "starling.yaml")
	text := fmt.Sprintf(`node: {name: n1, data_dir: %s/data, drain_timeout: 5s}
admin: {address: 127.0.0.1:0}
access_log: {path: %s}
listeners:
  - {address: 127.0.0.1:0, routes: [{pool: p}]}
pools:
  p: {backends: [{id: b1, url: http://127.0.0.1:1}]}
`, dir, log)
	if err := os.Mkdir(filepath.Dir(log), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var stdout, stderr printed
	code := make(chan int, 1)
	go func() { code <- run([]string{"serve", "--config", config}, &stdout, &stderr) }()
	var addr string
	soon(t, func() string {
		if n, _ := fmt.Sscanf(stdout.String(), "ready proxy=%s", &addr); n == 1 && strings.Contains(stdout.String(), "\n") {
			return ""
		}
		return "not ready: " + stderr.String()
	})
	ask := func() {
		t.Helper()
		resp, err := http.Get("http://" + addr + "/")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close() // a 502: there is no backend
	}
	signal := func(s syscall.Signal) {
		t.Helper()
		if err := syscall.Kill(os.Getpid(), s); err != nil {
			t.Fatal(err)
		}
	}
	has := func(path string, n int) {
		t.Helper()
		soon(t, func() string {
			if got := lines(path); got != n {
				return fmt.Sprintf("%s has %d lines, want %d", filepath.Base(path), got, n)
			}
			return ""
		})
	}

	ask()
	has(log, 1)
	if err := os.Rename(log, log+".1"); err != nil {
		t.Fatal(err)
	}
	ask() // still to the old one
	has(log+".1", 2)
	signal(syscall.SIGUSR1)
	has(log, 0)
	soon(t, func() string {
		if _, err := os.Stat(log); err != nil {
			return err.Error()
		}
		return ""
	})
	ask()
	has(log, 1)
	has(log+".1", 2)

	if err := os.Rename(filepath.Dir(log), filepath.Join(dir, "moved")); err != nil {
		t.Fatal(err)
	}
	signal(syscall.SIGUSR1)
	soon(t, func() string {
		if !strings.Contains(stderr.String(), "access log cannot be opened anew") {
			return "no warning"
		}
		return ""
	})
	ask()
	has(filepath.Join(dir, "moved", "access.log"), 2)

	signal(syscall.SIGTERM)
	select {
	case c := <-code:
		if c != 0 {
			t.Errorf("exit %d: %s", c, stderr.String())
		}
	case <-time.After(20 * time.Second):
		t.Fatal("still running after SIGTERM")
	}
}
