package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/starling-lb/starling/node/api"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// node is a fake admin API that answers one thing and keeps what it was asked.
type node struct {
	status int
	answer string
	code   string // of a refusal: the header that each of them has
	asked  string
	auth   string
}

func (n *node) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	n.asked = fmt.Sprintf("%s %s %s", r.Method, r.URL.EscapedPath(), body)
	n.auth = r.Header.Get("Authorization")
	if n.code != "" {
		w.Header().Set("X-Starling-Error", n.code)
	}
	w.WriteHeader(n.status)
	_, _ = io.WriteString(w, n.answer)
}

func ask(t *testing.T, n *node, tokenFile string) *Client {
	t.Helper()
	server := httptest.NewServer(n)
	t.Cleanup(server.Close)
	c, err := New(server.URL, tokenFile)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.http.CloseIdleConnections)
	return c
}

func TestAsk(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	n := &node{status: 200, answer: `{"pools":[{"name":"llm"}]}`}
	c := ask(t, n, file)
	var got api.Pools
	if err := c.Get(t.Context(), &got, "pools"); err != nil || len(got.Pools) != 1 || n.asked != "GET /v1/pools " || n.auth != "Bearer secret" {
		t.Errorf("%v, %+v, asked %q as %q", err, got, n.asked, n.auth)
	}
	if err := c.Post(t.Context(), map[string]int{"weight": 2}, "backends", "a/b c", "weight"); err != nil || n.asked != `POST /v1/backends/a%2Fb%20c/weight {"weight":2}` {
		t.Errorf("%v, asked %q", err, n.asked)
	}
	if err := c.Delete(t.Context(), "pools", "llm", "backends", "b1"); err != nil || n.asked != "DELETE /v1/pools/llm/backends/b1 " {
		t.Errorf("%v, asked %q", err, n.asked)
	}
}

func TestAnswers(t *testing.T) {
	refusal, _ := json.Marshal(api.Error{Error: api.ErrorBody{Code: "not_found", Message: "there is no pool x"}})
	for _, c := range []struct {
		name, answer, code, want string
		status                   int
	}{
		{"a refusal", string(refusal), "not_found", "there is no pool x", 404},
		{"another server", "<html>", "", "not as starling does", 502},
		{"another server with errors like ours", string(refusal), "", "not as starling does", 400},
		{"another version", `{"pools": 7}`, "", "of another version", 200},
	} {
		var got api.Pools
		err := ask(t, &node{status: c.status, answer: c.answer, code: c.code}, "").Get(t.Context(), &got, "pools")
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
		var refused *RefusedError
		if errors.As(err, &refused) != (c.status == 404) {
			t.Errorf("%s: %T", c.name, err)
		}
	}
}

func TestUnreachable(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	c, err := New(strings.TrimPrefix(server.URL, "http://"), "")
	if err != nil {
		t.Fatal(err)
	}
	err = c.Get(t.Context(), nil, "status")
	if err == nil || !strings.Contains(err.Error(), "no node answers at "+server.URL) || !strings.Contains(err.Error(), "STARLING_ADMIN") {
		t.Error(err)
	}
}

func TestBadAddress(t *testing.T) {
	for _, at := range []string{"ftp://x", "http://", "http://a/path", "://"} {
		if _, err := New(at, ""); err == nil || !strings.Contains(err.Error(), "is no address") {
			t.Errorf("%q: %v", at, err)
		}
	}
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{empty, empty + ".none"} {
		if _, err := New("", file); err == nil || !strings.Contains(err.Error(), "token: ") {
			t.Errorf("%q: %v", file, err)
		}
	}
}
