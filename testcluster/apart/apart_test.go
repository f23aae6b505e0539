package apart

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestNodeOfItsOwn is what a process apart runs; here there is nothing for it to do.
func TestNodeOfItsOwn(t *testing.T) {
	if err := Run(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// A node apart answers until it is ended, in either way; one that cannot start says so.
func TestApart(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "n.yaml")
	text := fmt.Sprintf(`node: {name: n, data_dir: %q}
admin: {address: "127.0.0.1:0"}
log: {level: error}
listeners: [{address: "127.0.0.1:0"}]
pools: {p: {backends: [{url: "http://127.0.0.1:1"}], health: {enabled: false}}}
`, filepath.Join(dir, "data"))
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, end := range map[string]func(*Process) error{
		"ended":  (*Process).End,
		"killed": func(p *Process) error { p.Kill(); return nil },
	} {
		p, err := Start("TestNodeOfItsOwn", path, os.Stderr)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.Get("http://" + p.Admin + "/v1/status")
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Errorf("%s: %v, %v", name, resp, err)
		}
		if err == nil {
			resp.Body.Close()
		}
		if err := end(p); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if resp, err := http.Get("http://" + p.Admin + "/v1/status"); err == nil {
			resp.Body.Close()
			t.Errorf("%s: it answers still", name)
		}
	}
	if _, err := Start("TestNodeOfItsOwn", filepath.Join(dir, "none.yaml"), nil); err == nil || !strings.Contains(err.Error(), "before it was ready") {
		t.Errorf("without a configuration: %v", err)
	}
}
