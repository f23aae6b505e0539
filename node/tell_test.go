package node

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/starling-lb/starling/node/api"
	"github.com/starling-lb/starling/node/quorum"
)

// A reload of all nodes ends at what is wrong with a file, and at nothing else: who ends,
// or is older, is told of, and the others go on.
func TestWhoCannotReloadHoldsNobodyUp(t *testing.T) {
	m := api.Member{ID: "b", Name: "n2"}
	fault, done := errors.New("line 12: polcy is no known key"), obeyed{Reloaded: api.Reloaded{ConfigHash: "9f0e", Changed: true}}
	for _, c := range []struct {
		name  string
		got   obeyed
		err   error
		ended bool
		why   string // in what is told of the node; "": nothing
		ends  bool   // the reload of all
	}{
		{"it has reloaded", done, nil, false, "", false},
		{"it has, and has ended", done, nil, true, "", false},
		{"it refuses its file", obeyed{}, fault, false, "", true},
		{"it ends", obeyed{Passed: "it is ending"}, nil, false, "it is ending", false},
		{"it has ended", obeyed{}, errors.New("no answer"), true, "it has ended meanwhile", false},
		{"it does not answer", obeyed{}, errors.New("no answer"), false, "", true},
		{"it is older", obeyed{}, quorum.ErrOlder, false, "upgrade it, or have it reload", false},
	} {
		said, err := outcome(m, c.got, c.err, func() bool { return c.ended })
		if (err != nil) != c.ends || !strings.Contains(said.Error, c.why) || (said.Error != "") != (c.why != "") || said.Name != "n2" || said.ID != "b" {
			t.Errorf("%s: %+v, %v", c.name, said, err)
		}
		if c.why == "" && (said.ConfigHash != c.got.ConfigHash || said.Changed != c.got.Changed) {
			t.Errorf("%s: %+v", c.name, said)
		}
	}
}

// A node that is not up says so to another that has it reload, and that is no refusal.
func TestReloadOfANodeThatEnds(t *testing.T) {
	answer, err := new(Node).toldTo(t.Context(), "a", []byte(`{"do":"reload"}`))
	var got obeyed
	if err != nil || json.Unmarshal(answer, &got) != nil || !strings.Contains(got.Passed, "starting or ending") {
		t.Errorf("%s, %v", answer, err)
	}
}
