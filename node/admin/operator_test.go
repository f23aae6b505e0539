package admin

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/starling-lb/starling/node/api"
)

// operate sends a change with a body.
func operate(t *testing.T, s *Server, request, body string) (status int, code, text string) {
	t.Helper()
	method, target, _ := strings.Cut(request, " ")
	req, err := http.NewRequestWithContext(t.Context(), method, "http://"+s.Addr().String()+target, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var refused api.Error
	_ = json.Unmarshal(data, &refused)
	return resp.StatusCode, refused.Error.Code, string(data)
}

func TestOperator(t *testing.T) {
	defer http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	r := newRig()
	s := r.start(t)
	for _, c := range []struct{ request, body, changed string }{
		{"POST /v1/keys/install", `{"key": "abc"}`, "install abc"},
		{"POST /v1/keys/use", `{"key": "abc"}`, "use abc"},
		{"POST /v1/keys/remove", `{"key": "abc"}`, "remove abc"},
		{"POST /v1/backends/b1/drain", "", "drain b1"},
		{"POST /v1/backends/b%2F1/undrain", "", "undrain b/1"},
		{"POST /v1/backends/b1/eject", "", "eject b1"},
		{"POST /v1/backends/b1/admit", "", "admit b1"},
		{"POST /v1/backends/b1/eject?scope=cluster", "", "eject b1"},
		{"POST /v1/backends/b1/eject?scope=node", "", "eject b1 here"},
		{"POST /v1/backends/b1/admit?scope=node", "", "admit b1 here"},
		{"POST /v1/backends/b1/reset", "", "reset b1"},
		{"POST /v1/backends/b1/weight", `{"weight": 2}`, "weigh b1 2"},
		{"POST /v1/pools/llm/backends", `{"url": "http://a:1"}`, "add llm {ID: URL:http://a:1 Weight:1 MaxStreams:0}"},
		{"POST /v1/pools/llm/backends", `{"id": "x", "url": "http://a:1", "weight": 3, "max_streams": 4}`, "add llm {ID:x URL:http://a:1 Weight:3 MaxStreams:4}"},
		{"DELETE /v1/pools/llm/backends/b1", "", "remove llm b1"},
		{"POST /v1/pools/llm/policy", `{"policy": "random"}`, "policy llm random, 0 of "},
		{"POST /v1/pools/llm/rebalance", `{"enabled": true}`, "rebalance llm true"},
		{"POST /v1/node/drain", "", "drain"},
		{"POST /v1/node/leave", "", "leave"},
		{"POST /v1/shards/3/reset", "", "reset 3"},
		{"POST /v1/shards/3/empty", "", "empty 3"},
		{"POST /v1/node/undrain", "", "stay"},
		{"POST /v1/sessions/llm/a%2Fb%20c/move", `{"backend": "b1"}`, "move llm a/b c b1"},
		{"POST /v1/pools/llm/policy", `{"policy": "p2c", "second": "random", "share": 0.1}`, "policy llm p2c, 0.1 of random"},
	} {
		r.node.changed = ""
		status, _, text := operate(t, s, c.request, c.body)
		if status != 200 || text != "{}\n" || r.node.changed != c.changed {
			t.Errorf("%s: %d %q, changed %q", c.request, status, text, r.node.changed)
		}
	}
}

func TestReload(t *testing.T) {
	defer http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	r := newRig()
	s := r.start(t)
	status, _, text := operate(t, s, "POST /v1/reload", "")
	if status != 200 || r.node.changed != "reload" || text != `{"config_hash":"0a1b2c3d4e5f","changed":true}`+"\n" {
		t.Errorf("%d %q, changed %q", status, text, r.node.changed)
	}
	status, _, text = operate(t, s, "POST /v1/reload?scope=cluster", "")
	if status != 200 || r.node.changed != "reload all" || !strings.Contains(text, `"nodes":[{"id":"n","name":"lb-1","config_hash":"0a1b2c3d4e5f","changed":true,"error":""}`) {
		t.Errorf("of all: %d %q, changed %q", status, text, r.node.changed)
	}
	r.node.refusal = refuse(Conflict, "f.yaml:1: it is wrong")
	if status, _, text = operate(t, s, "POST /v1/reload", ""); status != 409 || !strings.Contains(text, "f.yaml:1: it is wrong") {
		t.Errorf("a file that is wrong: %d %q", status, text)
	}
}

func TestOperatorRefused(t *testing.T) {
	defer http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	r := newRig()
	s := r.start(t)
	for _, c := range []struct{ request, body, want string }{
		{"POST /v1/backends/b1/weight", "", "the body is empty"},
		{"POST /v1/backends/b1/weight", `{"wieght": 2}`, `unknown field \"wieght\"`},
		{"POST /v1/backends/b1/weight", `{"weight": 2.5}`, "2.5"},
		{"POST /v1/backends/b1/weight", `{"weight": 2} {}`, "after the object"},
		{"POST /v1/backends/b1/weight", `[2]`, "JSON object"},
		{"POST /v1/backends/b1/drain", `{}`, "takes no body"},
	} {
		status, code, text := operate(t, s, c.request, c.body)
		if status != 400 || code != string(BadRequest) || !strings.Contains(text, c.want) || r.node.changed != "" {
			t.Errorf("%s %s: %d %s", c.request, c.body, status, text)
		}
	}
	r.node.refusal = refuse(NotFound, "there is no backend b9")
	if status, code, text := operate(t, s, "POST /v1/backends/b9/drain", ""); status != 404 || code != string(NotFound) || !strings.Contains(text, "no backend b9") {
		t.Errorf("an unknown backend: %d %s", status, text)
	}
	if status, _, _ := operate(t, s, "GET /v1/backends/b9/drain", ""); status != 405 {
		t.Errorf("GET of a verb: %d", status)
	}
}
