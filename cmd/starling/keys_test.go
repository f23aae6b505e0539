package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/starling-lb/starling/node/api"
)

// TestKeysComeByFile: a key of gossip is read from a file or standard input, and one
// on the command line is neither used nor repeated.
func TestKeysComeByFile(t *testing.T) {
	const key = "c3RhcmxpbmctdGVzdC1rZXktMDE="
	var asked []string
	node := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var o api.KeyOrder
		if err := json.NewDecoder(r.Body).Decode(&o); err != nil {
			t.Error(err)
		}
		asked = append(asked, r.URL.Path+" "+o.Key)
		_, _ = w.Write([]byte("{}"))
	}))
	t.Cleanup(node.Close)
	t.Setenv("STARLING_ADMIN", node.URL)
	file := filepath.Join(t.TempDir(), "new.key")
	if err := os.WriteFile(file, []byte(key+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, verb := range []string{"install", "use", "remove"} {
		asked = nil
		if code, _, errs := starling("keys", verb, key); code != exitError || strings.Contains(errs, key) || !strings.Contains(errs, "name the file that holds the key, or write -") {
			t.Errorf("keys %s KEY: exit %d, %s", verb, code, errs)
		}
		if asked != nil {
			t.Errorf("keys %s KEY asked for %q", verb, asked)
		}
		if code, out, errs := starling("keys", verb, file); code != 0 || out != verb+": done on every node\n" {
			t.Errorf("keys %s FILE: exit %d, %s%s", verb, code, out, errs)
		}
		root := newRoot()
		root.SetArgs([]string{"keys", verb, "-"})
		root.SetIn(strings.NewReader("  " + key + "\n"))
		root.SetOut(&strings.Builder{})
		if err := root.Execute(); err != nil {
			t.Errorf("keys %s -: %v", verb, err)
		}
		if want := "/v1/keys/" + verb + " " + key; len(asked) != 2 || asked[0] != want || asked[1] != want {
			t.Errorf("asked for %q, want %q twice", asked, want)
		}
	}
}
