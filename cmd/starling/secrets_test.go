package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

// TestSecretsStayIn: what gives access, in the configuration and in requests, is on no
// page of the admin API, in no metric and in no log, be it ever so talkative.
func TestSecretsStayIn(t *testing.T) {
	dir := t.TempDir()
	key := base64.StdEncoding.EncodeToString([]byte("0123456789abcdef"))
	secrets := []string{key, "token-of-the-admin", "value-of-a-header", "password-of-the-collector", "bearer-of-a-client", "cookie-of-a-client", "body-of-a-client", "answer-to-a-client", "from-the-environment"}
	t.Setenv("STARLING_TEST_SECRET", "from-the-environment")
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "answer-to-a-client") }))
	t.Cleanup(origin.Close)
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))
	t.Cleanup(collector.Close)
	text := fmt.Sprintf(`node: {name: n1, data_dir: %q, drain_timeout: 5s}
cluster: {bind: "127.0.0.1:0", rpc: "127.0.0.1:0", bootstrap_expect: 1, gossip_keys: [%q]}
shards: {count: 1}
admin: {address: "127.0.0.1:0", token_file: %q, pprof: true}
log: {level: debug}
access_log: {path: %q}
tracing: {otlp_endpoint: %q, sample: 1}
listeners:
  - address: 127.0.0.1:0
    routes:
      - {headers: {X-Api-Key: value-of-a-header, Authorization: "${STARLING_TEST_SECRET}"}, pool: p}
      - {pool: p}
pools:
  p: {backends: [{id: b1, url: %q}], sticky: {}}
`, filepath.Join(dir, "data"), key, filepath.Join(dir, "token"), filepath.Join(dir, "access.log"),
		strings.Replace(collector.URL, "http://", "http://user:password-of-the-collector@", 1), origin.URL)
	for name, content := range map[string]string{"token": "token-of-the-admin\n", "starling.yaml": text} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var stdout, stderr printed
	code := make(chan int, 1)
	go func() {
		code <- run([]string{"serve", "--config", filepath.Join(dir, "starling.yaml")}, &stdout, &stderr)
	}()
	var proxy, admin string
	soon(t, func() string {
		if n, _ := fmt.Sscanf(stdout.String(), "ready proxy=%s admin=%s\n", &proxy, &admin); n == 2 {
			return ""
		}
		return "not ready: " + stderr.String()
	})
	askAsClient(t, "http://"+proxy)
	said := map[string]string{}
	for _, page := range adminPages(t, "http://"+admin) {
		said[page] = adminPage(t, "http://"+admin+page)
	}
	if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case got := <-code:
		if got != 0 {
			t.Errorf("exit %d", got)
		}
	case <-time.After(dayLimit):
		t.Fatal("still running after SIGTERM")
	}
	log, err := os.ReadFile(filepath.Join(dir, "access.log"))
	if err != nil || !strings.Contains(string(log), `"status":200`) {
		t.Errorf("the access log holds %q, %v", log, err)
	}
	said["access log"], said["log"], said["standard output"] = string(log), stderr.String(), stdout.String()
	for where, text := range said {
		for _, s := range secrets {
			if i := strings.Index(text, s); i >= 0 {
				t.Errorf("%s shows %q: %q", where, s, text[max(0, i-100):min(len(text), i+100)])
			}
		}
	}
	if len(said) < 15 {
		t.Errorf("only %d places were looked at", len(said))
	}
}

// askAsClient sends what clients send in confidence.
func askAsClient(t *testing.T, url string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: dayLimit}
	req, err := http.NewRequest(http.MethodPost, url+"/v1/chat", strings.NewReader("body-of-a-client"))
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{"Authorization": "Bearer bearer-of-a-client", "Cookie": "id=cookie-of-a-client", "X-Session-ID": "s1"} {
		req.Header.Set(name, value)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); err != nil || string(body) != "answer-to-a-client" {
		t.Errorf("answered %q, %v", body, err)
	}
}

// adminPages are all that can be got, as the API itself says.
func adminPages(t *testing.T, base string) []string {
	t.Helper()
	var api struct {
		Paths map[string]map[string]any `json:"paths"`
	}
	if err := json.Unmarshal([]byte(adminPage(t, base+"/v1/openapi.json")), &api); err != nil {
		t.Fatal(err)
	}
	pages := []string{"/", "/v1/openapi.json", "/debug/pprof/goroutine?debug=2"}
	named := strings.NewReplacer("{pool}", "p", "{key}", "s1", "{id}", "b1")
	for path, methods := range api.Paths {
		if _, ok := methods["get"]; ok {
			pages = append(pages, named.Replace(path))
		}
	}
	return pages
}

// adminPage is what comes of a page within a moment; events never end.
func adminPage(t *testing.T, url string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if strings.HasSuffix(url, "/v1/events") {
		url += "?recent=1000"
		ctx, cancel = context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer token-of-the-admin")
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body) // what came until then
	if resp.StatusCode != http.StatusOK {
		t.Errorf("GET %s: status %d: %s", url, resp.StatusCode, text)
	}
	return string(text)
}

// TestNoSecretIsAFlag: the list of processes shows to all what a command was called
// with.
func TestNoSecretIsAFlag(t *testing.T) {
	secret, seen := regexp.MustCompile(`token|secret|password|key`), 0
	var look func(c *cobra.Command)
	look = func(c *cobra.Command) {
		for _, line := range strings.Split(c.Flags().FlagUsages(), "\n") {
			name, _, _ := strings.Cut(strings.TrimSpace(line), " ")
			if name == "" {
				continue
			}
			if seen++; secret.MatchString(name) && !strings.HasSuffix(name, "-file") {
				t.Errorf("%s takes a secret by %s; take a file", c.CommandPath(), name)
			}
		}
		for _, sub := range c.Commands() {
			look(sub)
		}
	}
	look(newRoot())
	if seen < 20 {
		t.Errorf("only %d flags were seen", seen)
	}
}
