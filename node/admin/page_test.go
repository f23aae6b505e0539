package admin

import (
	"strings"
	"testing"

	"github.com/starling-lb/starling/proxy/backend"
)

// TestPageKnowsClosedLists: the page offers every policy, and explains every reason.
func TestPageKnowsClosedLists(t *testing.T) {
	text, err := files.ReadFile("page/words.js")
	if err != nil {
		t.Fatal(err)
	}
	list, _, _ := strings.Cut(after(string(text), "policies = ["), "]")
	if want := `"` + strings.Join(backend.Policies(), `", "`) + `"`; list != want {
		t.Errorf("it offers the policies %s, want %s", list, want)
	}
	said, _, _ := strings.Cut(after(string(text), "reasons = {"), "};")
	for _, reason := range backend.Reasons() {
		if !strings.Contains(said, "\n  "+string(reason)+": ") {
			t.Errorf("it does not say what %s means", reason)
		}
	}
}

func after(text, mark string) string {
	_, rest, _ := strings.Cut(text, mark)
	return rest
}
