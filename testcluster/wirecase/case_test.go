package wirecase

import (
	"os"
	"strings"
	"testing"
	"testing/fstest"
)

func TestLoad(t *testing.T) {
	cases, err := Load(os.DirFS("testdata"))
	if err != nil {
		t.Fatal(err)
	}
	if len(cases) < 37 {
		t.Errorf("%d cases; some are lost", len(cases))
	}
	for _, c := range cases {
		filled, err := c.filled("wc0a1b2cx00001x")
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(filled.raw), "{{T}}") || !strings.Contains(string(filled.Client[0].Send), "wc0a1b2cx00001x") {
			t.Errorf("%s: the token is not in", c.ID)
		}
	}
	if got := len(newToken()); got != 15 {
		t.Errorf("a token has %d bytes, want 15", got)
	}
}

func TestLoadRefuses(t *testing.T) {
	one := func(more string) string {
		return `{"id": "a", "level": "must", "accept": [{"name": "x"}], "client": [{"send": "x"}]` + more + `}`
	}
	for _, tt := range []struct{ name, json, want string }{
		{"unknown key", `[` + one(`, "clinet": []`) + `]`, "clinet"},
		{"unknown key of a result", `[{"id": "a", "level": "must", "client": [{"send": "x"}], "accept": [{"client": {"stauts": ["200"]}}]}]`, "stauts"},
		{"no id", `[{"level": "must"}]`, "id is missing"},
		{"one id twice", `[` + one("") + `,` + one("") + `]`, "a is in"},
		{"unknown level", `[{"id": "a", "level": "may"}]`, "level"},
		{"nothing accepted", `[{"id": "a", "level": "must", "client": [{"send": "x"}]}]`, "accepted results"},
		{"two acts in a step", `[` + one(`, "backend": [[{"send": "x", "wait_ms": 1}]]`) + `]`, "exactly one"},
		{"no act in a step", `[` + one(`, "backend": [[{}]]`) + `]`, "exactly one"},
		{"repeat without count", `[` + one(`, "backend": [[{"send_repeat": "x"}]]`) + `]`, "count"},
		{"unknown close", `[` + one(`, "backend": [[{"close": "bye"}]]`) + `]`, "bye"},
		{"no byte", `[` + one(`, "backend": [[{"send": "\u0100"}]]`) + `]`, "no byte"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Load(fstest.MapFS{"a.json": {Data: []byte(tt.json)}})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want an error with %q", err, tt.want)
			}
		})
	}
}

func TestLatin(t *testing.T) {
	var l Latin
	if err := l.UnmarshalJSON([]byte(`"\u0081\u0002hi"`)); err != nil || l != "\x81\x02hi" {
		t.Errorf("got %q, %v", l, err)
	}
}
