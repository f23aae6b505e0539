package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A file that was changed is read by itself, at SIGHUP, and by starling reload; one
// that is wrong is not.
func TestReload(t *testing.T) {
	dir := t.TempDir()
	config := filepath.Join(dir, "starling.yaml")
	write := func(watch bool, more string) {
		t.Helper()
		text := fmt.Sprintf(`reload: {watch: %v}
node: {name: n1, data_dir: %s/data, drain_timeout: 5s}
admin: {address: 127.0.0.1:0}
listeners:
  - {address: 127.0.0.1:0, ready_path: /ready, routes: [{pool: p}]}
pools:
  p: {backends: [{id: b1, url: http://127.0.0.1:1}]}
%s`, watch, dir, more)
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(true, "")
	var stdout, stderr printed
	code := make(chan int, 1)
	go func() { code <- run([]string{"serve", "--config", config}, &stdout, &stderr) }()
	var proxy, admin string
	soon(t, func() string {
		if n, _ := fmt.Sscanf(stdout.String(), "ready proxy=%s admin=%s\n", &proxy, &admin); n == 2 {
			return ""
		}
		return "not ready: " + stderr.String()
	})
	says := func(want string, times int) {
		t.Helper()
		soon(t, func() string {
			if got := strings.Count(stderr.String(), want); got != times {
				return fmt.Sprintf("%q is said %d times, want %d:\n%s", want, got, times, stderr.String())
			}
			return ""
		})
	}
	says("the configuration is reloaded", 0)
	write(true, "  q: {backends: [{id: b2, url: http://127.0.0.1:2}]}\n")
	says("the configuration is reloaded", 1)

	write(false, "  q: {backends: [{id: b3, url: http://127.0.0.1:3}]}\n")
	says("the configuration is reloaded", 2) // the last that it sees by itself
	write(false, "  q: {bakends: []}\n")
	if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	says("bakends: is no known key", 1)
	reload := func(code int, want string) {
		t.Helper()
		var out, errs printed
		if got := run([]string{"reload", "--admin", "http://" + admin}, &out, &errs); got != code || !strings.Contains(out.String()+errs.String(), want) {
			t.Errorf("starling reload: exit %d, %q %q, want %q", got, out.String(), errs.String(), want)
		}
	}
	reload(1, "starling.yaml:8: pools.q.bakends")
	write(false, "")
	reload(0, "is in force now")
	reload(0, "is in force already")
	resp, err := http.Get("http://" + proxy + "/ready")
	if err != nil {
		t.Fatal(err)
	}
	if resp.Body.Close(); resp.StatusCode != 200 {
		t.Errorf("ready: %d", resp.StatusCode)
	}

	if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case c := <-code:
		if c != 0 {
			t.Errorf("exit %d: %s", c, stderr.String())
		}
	case <-time.After(20 * time.Second):
		t.Fatal("still running after SIGTERM")
	}
}
