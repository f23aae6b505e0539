package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/starling-lb/starling/testcluster/llm"
	"github.com/starling-lb/starling/testcluster/measure"
)

func TestBench(t *testing.T) {
	s, err := llm.New(llm.Options{ID: "b1"})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(t.Context()); err != nil {
			t.Log(err)
		}
	})
	trace := filepath.Join(t.TempDir(), "trace.csv")
	if err := os.WriteFile(trace, []byte("TIMESTAMP,ContextTokens,GeneratedTokens\n0,5,3\n1,5,3\n2,5,3\n3600,5,3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, errs := starling("bench", "--target", s.URL(), "--trace", trace, "--speed", "20", "--duration", "1s", "--json")
	var r measure.Report
	if err := json.Unmarshal([]byte(out), &r); code != 0 || err != nil || r.Due != 3 || r.Done != 3 || r.First.N != 3 {
		t.Errorf("exit %d, %v, %s%s", code, err, out, errs)
	}
	code, out, errs = starling("bench", "--target", s.URL(), "--rate", "50", "--duration", "200ms", "--output", "3", "--sessions", "2", "--header", "X-A: b")
	if code != 0 || !strings.Contains(out, "first event") {
		t.Errorf("exit %d, %s%s", code, out, errs)
	}
	for args, want := range map[string]struct {
		code  int
		words string
	}{
		"bench":                               {2, "target"},
		"bench --target 127.0.0.1:1":          {2, "no URL"},
		"bench --target http://x --rate 0":    {2, "--rate"},
		"bench --target http://x --header ab": {2, "Name: value"},
		"bench --target http://x --trace " + t.TempDir() + "/none":                          {2, "no such file"},
		"bench --target http://x --trace bench.go":                                          {2, "trace"},
		"bench --target http://127.0.0.1:1 --duration 50ms":                                 {1, "0 of "},
		"bench --target " + s.URL() + " --path /v1/models --rate 99 --duration 50ms --fail": {1, "answered whole"},
	} {
		if code, out, errs := starling(strings.Fields(args)...); code != want.code || !strings.Contains(errs, want.words) {
			t.Errorf("%s: exit %d, %s%s, want %d and %q", args, code, out, errs, want.code, want.words)
		}
	}
}
