package main

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
)

func built(edit func(*debug.BuildInfo)) *debug.BuildInfo {
	info := &debug.BuildInfo{
		GoVersion: "go1.26.8",
		Main:      debug.Module{Path: "github.com/starling-lb/starling", Version: "v0.1.0"},
		Deps: []*debug.Module{
			{Path: "go.etcd.io/bbolt", Version: "v1.5.0", Sum: "h1:bb="},
			{Path: "github.com/hashicorp/raft", Version: "v1.7.3", Sum: "h1:ra="},
		},
		Settings: []debug.BuildSetting{
			{Key: "GOOS", Value: "linux"}, {Key: "vcs.revision", Value: "abc"}, {Key: "vcs.modified", Value: "false"}, {Key: "vcs.time", Value: "2026-11-30T12:00:00Z"},
		},
	}
	if edit != nil {
		edit(info)
	}
	return info
}

func TestBill(t *testing.T) {
	sum := sha256.Sum256([]byte("binary"))
	text, err := billOf(built(nil), sum)
	if err != nil {
		t.Fatal(err)
	}
	if again, _ := billOf(built(func(i *debug.BuildInfo) { slices.Reverse(i.Deps) }), sum); string(again) != string(text) {
		t.Error("the same binary has two bills")
	}
	var b bill
	if err := json.Unmarshal(text, &b); err != nil {
		t.Fatal(err)
	}
	if b.Format != "CycloneDX" || b.Spec != "1.6" || b.Version != 1 || b.Metadata.Timestamp != "2026-11-30T12:00:00Z" {
		t.Errorf("%+v", b)
	}
	if !regexp.MustCompile(`^urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`).MatchString(b.Serial) {
		t.Errorf("serial number %s", b.Serial)
	}
	if c := b.Metadata.Component; c.URL != "pkg:golang/github.com/starling-lb/starling@v0.1.0" || c.Hashes[0].Content != "9a3a45d01531a20e89ac6ae10b0b0beb0492acd7216a368aa062d1a5fecaf9cd" {
		t.Errorf("the whole is %+v", c)
	}
	want := []string{"pkg:golang/github.com/hashicorp/raft@v1.7.3", "pkg:golang/go.etcd.io/bbolt@v1.5.0", "pkg:golang/std@1.26.8"}
	if !slices.Equal(b.Dependencies[0].Uses, want) {
		t.Errorf("made of %v, want %v", b.Dependencies[0].Uses, want)
	}
}

// What nobody could build again is not released.
func TestOnlyCommitsAreReleased(t *testing.T) {
	for name, edit := range map[string]func(*debug.BuildInfo){
		"changed":     func(i *debug.BuildInfo) { i.Settings[2].Value = "true" },
		"of nowhere":  func(i *debug.BuildInfo) { i.Settings = nil },
		"of a commit": nil,
	} {
		if got := isCommit(built(edit)); got != (edit == nil) {
			t.Errorf("%s: %v", name, got)
		}
	}
	replaced := built(func(i *debug.BuildInfo) { i.Deps[0].Replace = &debug.Module{Path: "../bbolt"} })
	if _, err := billOf(replaced, [32]byte{}); err == nil || !strings.Contains(err.Error(), "go.etcd.io/bbolt is replaced by ../bbolt") {
		t.Errorf("a replaced module: %v", err)
	}
}

func TestSums(t *testing.T) {
	dir := t.TempDir()
	for _, n := range []string{"b", "a"} {
		if err := os.WriteFile(filepath.Join(dir, n), []byte(n), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := writeSums(dir, []string{"b", "a"}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, sumsName))
	want := "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb  a\n3e23e8160039594a33894f6564e1b1348bbd7a0088d42c4acb73eeaed59c009d  b\n"
	if err != nil || string(text) != want {
		t.Errorf("sums are\n%swant\n%s%v", text, want, err)
	}
	if err := writeSums(dir, []string{"c"}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
}

// What lies there already would be taken for a part of the release.
func TestOutIsEmpty(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "old"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := release(t.Context(), io.Discard, dir, false); err == nil || !strings.Contains(err.Error(), "is not empty") {
		t.Errorf("into a directory with files: %v", err)
	}
}
