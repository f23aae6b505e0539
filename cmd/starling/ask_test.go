package main

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/starling-lb/starling/node/api"
	"github.com/starling-lb/starling/testcluster"
)

// The commands that ask a node, in an order in which an operator might.
func TestAskANode(t *testing.T) {
	c, err := testcluster.Start(t.Context(), testcluster.Options{Backends: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := c.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Setenv("STARLING_ADMIN", c.Node(0).AdminURL())
	for _, step := range []struct {
		args string
		code int
		out  string // matches all of what it says
	}{
		{"status", 0, `node\s+n1 .*\nversion .*\nstate\s+alive; .*\nmembers\s+1 of 1 alive\nstreams\s+0 running, 0 waiting\nconfig\s+[0-9a-f]+\n`},
		{"shards", 0, `SHARD .*\n`},
		{"pools", 0, `POOL .*\nllm\s+p2c\s+2\s.*\n`},
		{"backends", 0, `BACKEND .*\nb1\s+llm\s+active.*\nb2\s+llm\s+active.*\n`},
		{"streams", 0, `STREAM .*\n`},
		{"status --cluster", 0, `NODE .*\nn1\s+alive\s.*\s-\n\nanswered\s+1 of 1 nodes\nstreams\s+0 running, 0 waiting\n`},
		{"backends --cluster", 0, `BACKEND\s+POOL\s+NODE.*\nb1\s+llm\s+n1\s+active.*\nb2\s+llm\s+n1\s+active.*\n`},
		{"pools --cluster", 0, `POOL\s+NODE.*\nllm\s+n1\s+p2c\s+2\s.*\n`},
		{"streams --cluster --limit 5", 0, `STREAM\s+NODE.*\n`},
		{"streams --cluster --limit 5000", 1, `starling: query parameter limit="5000": write a number from 1 to 1000\n`},
		{"backend drain b1", 0, "b1: draining\n"},
		{"backend weight b2 5", 0, "b2 5: weight changed\n"},
		{"backend add http://127.0.0.1:9 --id b3 --weight 2", 0, "http://127.0.0.1:9: added\n"},
		{"backends", 0, `BACKEND .*\nb1\s+llm\s+draining.*\nb2\s+llm\s+active\s.*\s5\s.*\nb3\s+llm\s.*\s2\s.*\n`},
		{"backend remove b3", 0, "b3: removed\n"},
		{"backend eject b2", 0, "b2: ejected\n"},
		{"backend admit b2", 0, "b2: admitted\n"},
		{"backend eject b2 --here", 0, "b2: ejected\n"},
		{"backends --cluster", 0, `BACKEND .*\nb1 .*\nb2\s+llm\s+n1\s+ejected.*\n`},
		{"backend admit b2 --here", 0, "b2: admitted\n"},
		{"reload --cluster", 1, `starling: this node refused, and no other was asked: .*this node was started without a file.*\n`},
		{"backend undrain b1", 0, "b1: takes streams again\n"},
		{"backend reset b2", 0, "b2: as the configuration says\n"},
		{"policy llm random", 0, "llm random: policy changed\n"},
		{"rebalance off llm", 0, "off llm: rebalancing is switched\n"},
		{"rebalance maybe llm", 1, `starling: "maybe" is neither on nor off\n`},
		{"rebalance on chat", 1, `starling: there is no pool "chat".*\n`},
		{"pools", 0, `POOL .*\nllm\s+random\s+2\s.*\n`},
		{"policy llm ''", 0, "llm: policy changed\n"},
		{"policy llm p2c --second random --share 0.25", 0, "llm p2c: policy changed\n"},
		{"pools", 0, `POOL .*\nllm\s+p2c, 25% random\s+2\s.*\n`},

		{"shards reset 1 --empty", 1, `starling: this node is alone: its shards have no replicas.*\n`},
		{"backend drain b9", 1, `starling: there is no backend "b9" .*\n`},
		{"backend remove b9", 1, `starling: there is no backend "b9".*\n`},
		{"backend weight b1 much", 1, `starling: weight "much": write a number from 1 to 1000\n`},
		{"backend weight b1 0", 1, `starling: weight: 0 is out of range.*\n`},
		{"backend add ftp://x", 1, `starling: url: .*scheme.*\n`},
		{"backend add http://127.0.0.1:9 --pool nope", 1, `starling: there is no pool "nope".*\n`},
		{"policy llm best", 1, `starling: there is no policy "best".*\n`},
		{"policy llm p2c --share 0.1", 1, `starling: share 0.1 of a second policy.*\n`},
		{"policy llm p2c --second best --share 0.1", 1, `starling: there is no policy "best".*\n`},
		{"backend drain", 2, `starling: accepts 1 arg.*; usage: starling backend drain ID .*\n.*--help\n`},
		{"config", 0, `# [0-9a-f]{12} of -, read .*\n(?s:.*pools:\n  llm:\n.*)`},
		{"events --recent 1000 --once", 0, `(?s:.*state     b1 active -> draining: an operator drains it\n.*operator  set policy, pool llm, policy p2c.*)`},
		{"events --once --recent 1001", 1, `starling: query parameter recent="1001".*\n`},
		{"events --once --after x", 1, `starling: Last-Event-ID "x": no id of an event.*\n`},
		{"top", 2, `starling: top needs a terminal.*\n`},
		{"backend weight b1 3 --json", 0, `{"done":"b1 3: weight changed"}\n`},
		{"status --ca-file nowhere.pem", 1, `starling: signers: open nowhere.pem: .*--ca-file.*\n`},
		{"__complete backend drain ''", 0, `b1\nb2\n:4\nCompletion.*\n`},
		{"__complete rebalance ''", 0, `on\noff\n:4\nCompletion.*\n`},
		{"__complete policy llm l", 0, `(?s:.*least_connections\n.*)`},
		{"__complete backend drain --admin 127.0.0.1:1 ''", 0, `:4\nCompletion.*\n`},
		{"completion bash", 0, `(?s:# bash completion .*)`},
		{"node undrain", 1, `starling: this node is alone: it was not set aside.*\n`},
		{"status --admin 127.0.0.1:1", 1, `starling: no node answers at http://127\.0\.0\.1:1 .*STARLING_ADMIN.*\n`},
	} {
		code, out, errs := starling(words(step.args)...)
		if code != step.code || !regexp.MustCompile(`^(?:`+step.out+`)$`).MatchString(out+errs) {
			t.Errorf("starling %s: exit %d\n%s%s\nwant %d %s", step.args, code, out, errs, step.code, step.out)
		}
	}
	code, out, _ := starling("events", "--once", "--json", "--recent", "1")
	var e api.Event
	if err := json.Unmarshal([]byte(out), &e); code != 0 || err != nil || e.ID == "" || e.Kind == "" {
		t.Errorf("events --json: exit %d, %v, %s", code, err, out)
	}
	code, out, _ = starling("backends", "--json")
	var l api.Backends
	if err := json.Unmarshal([]byte(out), &l); code != 0 || err != nil || len(l.Backends) != 2 {
		t.Errorf("--json: exit %d, %v, %s", code, err, out)
	}
}

// TestAskOverTLS asks what stands in for a node, by TLS: an upgrade in JSON is JSON and
// nothing else, the shell's completion trusts whom the command would, and events that
// the node ends are no good end, but for --once.
func TestAskOverTLS(t *testing.T) {
	says := http.NewServeMux()
	for at, answer := range map[string]string{
		"POST /v1/upgrade": `{"pid":7,"version":"0.2.0","took":0.3,"waited":0.1,"streams":2}`,
		"GET /v1/backends": `{"backends":[{"id":"b1"}]}`,
		"GET /v1/events":   "data: {\"kind\":\"reload\",\"reason\":\"read\"}\n\n: live\n\n",
	} {
		says.HandleFunc(at, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, answer) })
	}
	node := httptest.NewTLSServer(says)
	t.Cleanup(node.Close)
	signer := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(signer, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: node.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		args string
		code int
		out  string
	}{
		{"upgrade --json", 0, `{"pid":7,"version":"0.2.0","took":0.3,"waited":0.1,"streams":2}\n`},
		{"upgrade", 0, `a new process begins\nprocess 7 \(0.2.0\) is the node, after 300ms; .*\n.*2 streams.*\n`},
		{"__complete backend drain ''", 0, `b1\n:4\nCompletion.*\n`},
		{"events", 1, `.* reload    read\nstarling: the events of .* are over: .*\n`},
		{"events --once", 0, `.* reload    read\n`},
	} {
		args := append(words(step.args), "--admin", node.URL, "--ca-file", signer)
		if at := slices.Index(args, ""); at > 0 {
			args = append(slices.Delete(args, at, at+1), "") // what is completed stands last
		}
		if code, out, errs := starling(args...); code != step.code || !regexp.MustCompile(`^(?:`+step.out+`)$`).MatchString(out+errs) {
			t.Errorf("starling %s: exit %d\n%s%s\nwant %d %s", step.args, code, out, errs, step.code, step.out)
		}
	}
}

// words are the arguments in a line; two quotes are an empty one.
func words(line string) []string {
	out := strings.Fields(line)
	for i := range out {
		if out[i] == "''" {
			out[i] = ""
		}
	}
	return out
}
