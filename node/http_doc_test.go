package node

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/starling-lb/starling/proxy/backend"
)

const httpReference = "../docs/reference/http.md"

// TestHTTPReference holds the page against what it cites: every wire case,
// experiment and test in a last column exists, and every code has its status.
func TestHTTPReference(t *testing.T) {
	data, err := os.ReadFile(httpReference)
	if err != nil {
		t.Fatal(err)
	}
	known := wireCases(t)
	for _, room := range []string{"proxy", "proxy/wire", "proxy/backend", "testcluster", "testcluster/wirecase"} {
		for _, name := range testsOf(t, "../"+room) {
			known[filepath.Base(room)+"."+name] = true
			if experiment := regexp.MustCompile(`^TestG\d\d`).FindString(name); experiment != "" {
				known[strings.TrimPrefix(experiment, "Test")] = true
			}
		}
	}
	rows := 0
	for line := range strings.Lines(string(data)) {
		cells := strings.Split(strings.TrimSpace(line), " | ")
		if len(cells) < 3 || !strings.HasSuffix(line, "|\n") || !strings.Contains(cells[len(cells)-1], "`") {
			continue
		}
		rows++
		for _, cited := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[len(cells)-1], -1) {
			if !known[cited[1]] {
				t.Errorf("%s is cited, and there is no such case or test: %s", cited[1], line)
			}
		}
	}
	if rows < 40 {
		t.Errorf("%d rows cite something; the tables are not read as they are written", rows)
	}
	for _, c := range backend.Codes() {
		if row := fmt.Sprintf("\n| %d | `%s` |", c.Status(), c); !strings.Contains(string(data), row) {
			t.Errorf("no row for %d %s", c.Status(), c)
		}
	}
}

func wireCases(t *testing.T) map[string]bool {
	known := map[string]bool{}
	files, err := filepath.Glob("../testcluster/wirecase/testdata/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no wire cases: %v", err)
	}
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		var cases []struct{ ID string }
		if err := json.Unmarshal(data, &cases); err != nil {
			t.Fatalf("%s: %v", f, err)
		}
		for _, c := range cases {
			known[c.ID] = true
		}
	}
	return known
}

func testsOf(t *testing.T, dir string) (names []string) {
	files, err := filepath.Glob(dir + "/*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\)`).FindAllStringSubmatch(string(data), -1) {
			names = append(names, m[1])
		}
	}
	return names
}
