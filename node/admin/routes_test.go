package admin

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/url"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/starling-lb/starling/node/api"
)

func TestMatch(t *testing.T) {
	move := route{path: "/v1/sessions/{pool}/{key}/move"}
	for _, c := range []struct {
		path string
		want map[string]string // nil: no match
	}{
		{"/v1/sessions/llm/abc/move", map[string]string{"pool": "llm", "key": "abc"}},
		{"/v1/sessions/llm/a%2Fb%20c+%25/move", map[string]string{"pool": "llm", "key": "a/b c+%"}},
		{"/v1/sessions/llm/move/move", map[string]string{"pool": "llm", "key": "move"}},
		{"/v1/sessions/llm/%7Bkey%7D/move", map[string]string{"pool": "llm", "key": "{key}"}},
		{"/v1/sessions/llm//move", nil},
		{"/v1/sessions/llm/abc", nil},
		{"/v1/sessions/llm/abc/move/", nil},
		{"/v1/sessions/llm/a/b/move", nil},
		{"/v1/Sessions/llm/abc/move", nil},
		{"v1/sessions/llm/abc/move", nil},
		{"*", nil},
		{"", nil},
	} {
		segments, err := decode(c.path)
		if err != nil {
			t.Errorf("%s: %v", c.path, err)
			continue
		}
		if got, ok := move.match(segments); ok != (c.want != nil) || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: got %v %v, want %v", c.path, got, ok, c.want)
		}
	}
}

func TestBadEscape(t *testing.T) {
	for _, path := range []string{"/%zz", "/a/%", "/%2"} {
		var e *Error
		if _, err := decode(path); !errors.As(err, &e) || e.Code != BadRequest || !strings.Contains(e.Message, path) {
			t.Errorf("%s: %v, want a bad_request that names it", path, err)
		}
	}
}

// Whatever a key holds, it comes out as it went in, and only its own route
// takes it.
func FuzzKey(f *testing.F) {
	for _, key := range []string{"abc", "a/b", "..", "%2F", "{key}", "\x00", "ü"} {
		f.Add(key)
	}
	r, other := route{path: "/k/{key}/x"}, route{path: "/k/{key}"}
	f.Fuzz(func(t *testing.T, key string) {
		segments, err := decode("/k/" + url.PathEscape(key) + "/x")
		if err != nil {
			t.Fatal(err)
		}
		got, ok := r.match(segments)
		if ok != (key != "") || ok && got["key"] != key {
			t.Errorf("%q came out as %q, %v", key, got["key"], ok)
		}
		if _, ok := other.match(segments); ok {
			t.Errorf("%q made another route match", key)
		}
	})
}

func TestSeveralMethods(t *testing.T) {
	var did string
	do := func(name string) func(*call) error {
		return func(c *call) error { did = name + " " + c.path["id"]; return nil }
	}
	s := decide(t, Config{Address: "127.0.0.1:0"})
	s.routes = []route{
		{method: "POST", path: "/x/{id}", do: do("post")},
		{method: "DELETE", path: "/x/{id}", do: do("delete")},
		{method: "GET", path: "/x/{id}", do: do("get")},
	}
	for request, want := range map[string]string{"POST /x/a%2Fb": "post a/b", "DELETE /x/1": "delete 1", "GET /x/2": "get 2", "HEAD /x/3": "get 3"} {
		if code := s.ask(request); code != "" || did != want {
			t.Errorf("%s: %q, did %q, want %q", request, code, did, want)
		}
	}
	if code := s.ask("PUT /x/1"); code != MethodNotAllowed {
		t.Errorf("PUT: %q", code)
	}
}

func TestReferenceListsEveryRoute(t *testing.T) {
	var served, told []string
	s := decide(t, Config{Address: "127.0.0.1:0"})
	for _, r := range s.table(true) {
		if r.who == everyone && strings.Contains(r.path, ".") {
			continue // what the dashboard is made of
		}
		served = append(served, r.method+" "+r.path)
	}
	for _, m := range regexp.MustCompile("(?m)^### `([A-Z]+ [^`]+)`$").FindAllStringSubmatch(reference(t), -1) {
		told = append(told, m[1])
	}
	slices.Sort(served)
	slices.Sort(told)
	if !slices.Equal(served, told) {
		t.Errorf("docs/reference/admin.md and the routes differ\ntold   %q\nserved %q", told, served)
	}
}

// The examples hold every field and no other.
func TestReferenceExamples(t *testing.T) {
	text := reference(t)
	for heading, into := range map[string]any{
		"## Errors":              &api.Error{},
		"### `GET /v1/status`":   &api.Status{},
		"### `GET /v1/members`":  &api.Members{},
		"### `GET /v1/shards`":   &api.ShardList{},
		"### `GET /v1/keys`":     &api.Keys{},
		"### `GET /v1/backends`": &api.Backends{},
		"### `GET /v1/streams`":  &api.StreamList{},
		"### `GET /v1/pools`":    &api.Pools{},
		"### `GET /v1/config`":   &api.Config{},
	} {
		_, after, _ := strings.Cut(text, "\n"+heading+"\n")
		_, after, _ = strings.Cut(after, "```json\n")
		example, _, _ := strings.Cut(after, "```")
		dec := json.NewDecoder(strings.NewReader(example))
		dec.DisallowUnknownFields()
		if err := dec.Decode(into); err != nil {
			t.Errorf("%s: %v", heading, err)
			continue
		}
		var want bytes.Buffer
		if err := json.Compact(&want, []byte(example)); err != nil {
			t.Fatal(err)
		}
		if got, err := json.Marshal(into); err != nil || string(got) != want.String() {
			t.Errorf("%s: the example is\n%s\nand should be\n%s", heading, &want, got)
		}
	}
}

func TestReferenceListsEveryCode(t *testing.T) {
	text := reference(t)
	for _, c := range codes() {
		if row := regexp.MustCompile(`(?m)^\| (\d+) \| ` + "`" + string(c) + "`").FindStringSubmatch(text); row == nil {
			t.Errorf("code %s is not told", c)
		} else if row[1] != strconv.Itoa(c.Status()) {
			t.Errorf("code %s is told with status %s, and has %d", c, row[1], c.Status())
		}
	}
}

func reference(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/reference/admin.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
