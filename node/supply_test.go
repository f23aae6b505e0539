package node

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/starling-lb/starling/node/admin"
	"github.com/starling-lb/starling/node/api"
	"github.com/starling-lb/starling/proxy/backend"
	"github.com/starling-lb/starling/shards/meta"
)

// shelf is a supply and what it was last told to apply, by pool.
type shelf struct {
	*supply
	path   string
	has    map[string]wanted
	refuse error
}

func newShelf(t *testing.T, listed map[string][]backend.Config) *shelf {
	t.Helper()
	s := &shelf{path: filepath.Join(t.TempDir(), "operator.json")}
	s.again(t, listed)
	return s
}

// again is a restart.
func (s *shelf) again(t *testing.T, listed map[string][]backend.Config) {
	t.Helper()
	s.has = map[string]wanted{}
	s.supply = newSupply(slog.New(slog.DiscardHandler), func(pool string, w wanted) error {
		if s.refuse != nil {
			return s.refuse
		}
		s.has[pool] = w
		return nil
	})
	if err := s.start(s.path, listed); err != nil {
		t.Fatal(err)
	}
}

// shows is a pool as text: id*weight, with ! where it is drained.
func (s *shelf) shows(pool string) string {
	var words []string
	for _, c := range s.has[pool].list {
		word := fmt.Sprintf("%s*%d", c.ID, c.Weight)
		if s.has[pool].drained[c.ID] {
			word += "!"
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

func named(ids ...string) []backend.Config {
	var list []backend.Config
	for i, id := range ids {
		list = append(list, backend.Config{ID: id, URL: fmt.Sprintf("http://10.0.0.%d:9000", i+1), Weight: 1})
	}
	return list
}

// A story of operators and sources: each line is a deed and what the pool then
// has. Decisions outlive restarts and beat every source until they are reset.
func TestSupply(t *testing.T) {
	listed := map[string][]backend.Config{"llm": named("a", "b"), "code": named("x")}
	s := newShelf(t, listed)
	step := func(what string, err error, want string) {
		t.Helper()
		if got := s.shows("llm"); err != nil || got != want {
			t.Errorf("%s: %q (%v), want %q", what, got, err, want)
		}
	}
	step("start", nil, "a*1 b*1")
	s.find("llm", named("b", "c"))
	step("discovery adds to the file", nil, "a*1 b*1 c*1")
	step("an operator adds", s.add("llm", backend.Config{ID: "d", URL: "http://d:1", Weight: 2}), "a*1 b*1 c*1 d*2")
	step("and weighs", s.weigh("c", 7), "a*1 b*1 c*7 d*2")
	step("and drains", s.hold("a", true), "a*1! b*1 c*7 d*2")
	step("and removes what the file names", s.remove("llm", "b"), "a*1! c*7 d*2")
	s.find("llm", named("b", "c", "e"))
	step("discovery cannot bring it back", nil, "a*1! c*7 e*1 d*2")
	s.again(t, listed)
	step("after a restart, before discovery", nil, "a*1! d*2")
	s.find("llm", named("b", "c", "e"))
	step("and after it", nil, "a*1! c*7 e*1 d*2")
	step("undrained", s.hold("a", false), "a*1 c*7 e*1 d*2")
	step("what was added is removed", s.remove("llm", "d"), "a*1 c*7 e*1")
	step("what was weighed is reset", s.reset("c"), "a*1 c*1 e*1")
	step("what was removed is reset", s.reset("b"), "a*1 b*1 c*1 e*1")
	step("one that the file names is removed", s.remove("llm", "a"), "b*1 c*1 e*1")
	step("and added with another URL", s.add("llm", backend.Config{ID: "a", URL: "http://other:1", Weight: 1}), "b*1 c*1 e*1 a*1")
	if list := s.has["llm"].list; list[3].URL != "http://other:1" {
		t.Errorf("its URL is the file's: %+v", list)
	}
	if err := s.add("code", backend.Config{ID: "a", URL: "http://other:1", Weight: 1}); err == nil {
		t.Error("it stands in two pools")
	}
	step("and removed again", s.remove("llm", "a"), "b*1 c*1 e*1")
	if err := s.add("code", backend.Config{ID: "a", URL: "http://other:1", Weight: 1}); err == nil || !strings.Contains(err.Error(), "reset it") {
		t.Errorf("added to another pool than that which it was removed from: %v", err)
	}
	step("an operator adds", s.add("llm", backend.Config{ID: "f", URL: "http://f:1", Weight: 1}), "b*1 c*1 e*1 f*1")
	s.find("llm", named("b", "c", "e", "f"))
	step("what discovery names by now is removed", s.remove("llm", "f"), "b*1 c*1 e*1")
	s.find("llm", named("b", "c", "e"))
	step("the file's is back", s.reset("a"), "a*1 b*1 c*1 e*1")
	if got := s.shows("code"); got != "x*1" {
		t.Errorf("the other pool has %q", got)
	}
	if err := s.say("b", time.Minute); err != nil || s.has["llm"].words["b"].Length != int64(time.Minute) || s.has["llm"].words["a"] != (meta.Word{}) {
		t.Errorf("words are %+v, %v", s.has["llm"].words, err)
	}
	first := s.has["llm"].words["b"].Number
	s.again(t, listed)
	s.find("llm", named("b", "c", "e"))
	if err := s.say("b", 0); err != nil || s.has["llm"].words["b"].Number <= first || s.has["llm"].words["b"].Length != 0 {
		t.Errorf("words are %+v after %d, %v", s.has["llm"].words, first, err)
	}
	if err := s.say("nobody", 0); err == nil || !strings.Contains(err.Error(), `no backend "nobody"`) {
		t.Errorf("a word on nobody: %v", err)
	}
	s.together = func(string, func(*meta.Pool) error) error { return nil }
	if err := s.say("b", time.Minute); err == nil || !strings.Contains(err.Error(), "has not agreed on the backends of pool llm yet") {
		t.Errorf("a word where there is a cluster and no record: %v", err)
	}
	s.together = nil
	step("what was said is reset", s.reset("b"), "a*1 b*1 c*1 e*1")
	if s.has["llm"].words["b"] != (meta.Word{}) {
		t.Errorf("a word is left: %+v", s.has["llm"].words["b"])
	}
	mixed := api.Policy{Policy: "random", Second: "p2c", Share: 0.25}
	if err := s.rest("llm", "off"); err != nil || s.has["llm"].rest != "off" || s.has["code"].rest != "" {
		t.Errorf("rebalancing is %q, %v", s.has["llm"].rest, err)
	}
	if err := s.rule("llm", mixed); err != nil || s.has["llm"].policy != mixed || s.has["code"].policy != (api.Policy{}) {
		t.Errorf("policy %+v, %v", s.has["llm"], err)
	}
	s.again(t, listed)
	if s.has["llm"].rest != "off" {
		t.Errorf("after a restart rebalancing is %q", s.has["llm"].rest)
	}
	if s.has["llm"].policy != mixed {
		t.Error("the policies did not outlive a restart")
	}
	if err := s.rule("llm", api.Policy{}); err != nil || s.has["llm"].policy != (api.Policy{}) {
		t.Errorf("taken back: %+v, %v", s.has["llm"], err)
	}
}

func TestSupplyRefuses(t *testing.T) {
	s := newShelf(t, map[string][]backend.Config{"llm": named("a"), "code": named("x")})
	for _, c := range []struct {
		what string
		err  error
		code admin.Code
	}{
		{"an id that is there", s.add("llm", named("x")[0]), admin.Conflict},
		{"no such pool", s.add("nope", named("y")[0]), admin.NotFound},
		{"no such pool", s.remove("nope", "a"), admin.NotFound},
		{"a backend of another pool", s.remove("llm", "x"), admin.NotFound},
		{"no such backend", s.weigh("y", 2), admin.NotFound},
		{"no weight", s.weigh("a", 0), admin.BadRequest},
		{"no such backend", s.hold("y", true), admin.NotFound},
		{"nothing to reset", s.reset("y"), admin.NotFound},
		{"no such pool to rest", s.rest("nope", "on"), admin.NotFound},
		{"no such pool", s.rule("nope", api.Policy{Policy: "random"}), admin.NotFound},
	} {
		var e *admin.Error
		if !errors.As(c.err, &e) || e.Code != c.code {
			t.Errorf("%s: %v, want %s", c.what, c.err, c.code)
		}
	}
	if _, err := os.Stat(s.path); err == nil {
		t.Error("a refused decision was written")
	}
	s.refuse = errors.New("no")
	if err := s.hold("a", true); !errors.Is(err, s.refuse) {
		t.Errorf("what cannot be applied: %v", err)
	}
	s.refuse = nil
	s.again(t, map[string][]backend.Config{"llm": named("a")})
	if got := s.shows("llm"); got != "a*1" {
		t.Errorf("what could not be applied is in force after a restart: %q", got)
	}
}

// An id that stands in two pools serves the first alone.
func TestSupplyDoubled(t *testing.T) {
	s := newShelf(t, map[string][]backend.Config{"code": named("x"), "llm": named("a")})
	s.find("llm", named("x", "c"))
	if got := s.shows("llm"); got != "a*1 c*1" || s.shows("code") != "x*1" {
		t.Errorf("llm %q, code %q", got, s.shows("code"))
	}
}

func TestBadDecisions(t *testing.T) {
	for text, want := range map[string]string{"{": "not readable", `{"format": 9}`: "format 9"} {
		path := filepath.Join(t.TempDir(), "operator.json")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := readDecisions(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
