package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Where sessions live is no matter of what a reload changes around them.
func TestReloadKeepsSessions(t *testing.T) {
	dir := t.TempDir()
	config := filepath.Join(dir, "starling.yaml")
	var urls []string
	for range 3 {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") }))
		t.Cleanup(s.Close)
		urls = append(urls, s.URL)
	}
	write := func(version int) {
		t.Helper()
		text := fmt.Sprintf(`reload: {watch: false}
node: {name: n1, data_dir: %s/data, drain_timeout: %ds}
admin: {address: 127.0.0.1:0}
timeouts: {write_idle: %ds}
listeners:
  - {address: 127.0.0.1:0, ready_path: /ready, routes: [{path_prefix: /v%d, pool: p}, {pool: p}]}
pools:
  p:
    backends: [{id: b1, url: %s, weight: %d}, {id: b2, url: %s}, {id: b3, url: %s, max_streams: %d}]
    headers: {expose_backend: true}
    rebalance: {enabled: false}
    sticky: {ttl: %dm}
`, dir, 5+version, 30+version, version, urls[0], 1+version, urls[1], urls[2], 100+version, 10+version)
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(0)
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
	ask := func(session int) string {
		t.Helper()
		q, err := http.NewRequest("GET", "http://"+proxy+"/", nil)
		if err != nil {
			t.Fatal(err)
		}
		q.Header.Set("X-Session-ID", fmt.Sprint("s", session))
		resp, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		if resp.Body.Close(); resp.StatusCode != 200 {
			t.Fatalf("session %d: %d", session, resp.StatusCode)
		}
		return resp.Header.Get("X-Starling-Backend")
	}
	homes := map[int]string{}
	used := map[string]bool{}
	for i := range 30 {
		homes[i] = ask(i)
		used[homes[i]] = true
	}
	if len(used) < 2 {
		t.Fatalf("all sessions live at one backend: %v", homes)
	}
	for version := 1; version <= 3; version++ {
		write(version)
		var out printed
		if got := run([]string{"reload", "--admin", "http://" + admin}, &out, &out); got != 0 {
			t.Fatalf("reload: exit %d, %s", got, out.String())
		}
		for i, home := range homes {
			if got := ask(i); got != home {
				t.Errorf("after reload %d session %d is at %s, not at %s", version, i, got, home)
			}
		}
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case c := <-code:
		if c != 0 {
			t.Errorf("exit %d: %s", c, stderr.String())
		}
	case <-time.After(30 * time.Second):
		t.Fatal("still running after SIGTERM")
	}
}

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
