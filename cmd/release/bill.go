package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
)

// bill is a bill of materials, CycloneDX 1.6. Only what it says of a Go binary is
// here.
type bill struct {
	Schema       string       `json:"$schema"`
	Format       string       `json:"bomFormat"`
	Spec         string       `json:"specVersion"`
	Serial       string       `json:"serialNumber"`
	Version      int          `json:"version"`
	Metadata     metadata     `json:"metadata"`
	Components   []component  `json:"components"`
	Dependencies []dependency `json:"dependencies"`
}

type metadata struct {
	Timestamp string    `json:"timestamp,omitempty"` // of the commit: the same commit makes the same bill
	Component component `json:"component"`
}

type component struct {
	Type       string     `json:"type"`
	Ref        string     `json:"bom-ref"`
	Name       string     `json:"name"`
	Version    string     `json:"version"`
	URL        string     `json:"purl"`
	Licenses   []licence  `json:"licenses,omitempty"`
	Hashes     []hash     `json:"hashes,omitempty"`
	Properties []property `json:"properties,omitempty"`
}

type licence struct {
	License struct {
		ID string `json:"id"`
	} `json:"license"`
}

type hash struct {
	Algorithm string `json:"alg"`
	Content   string `json:"content"`
}

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

type dependency struct {
	Ref  string   `json:"ref"`
	Uses []string `json:"dependsOn"`
}

// isCommit tells whether the binary is of one commit, with nothing changed.
func isCommit(info *debug.BuildInfo) bool {
	return setting(info, "vcs.revision") != "" && setting(info, "vcs.modified") == "false"
}

func setting(info *debug.BuildInfo, key string) string {
	for _, s := range info.Settings {
		if s.Key == key {
			return s.Value
		}
	}
	return ""
}

// billOf says what a binary is made of, as the go command wrote it there: the
// modules, with the sums by which go.sum knows them, and Go's own library.
func billOf(info *debug.BuildInfo, sum [32]byte) ([]byte, error) {
	whole := module("application", info.Main.Path, info.Main.Version)
	whole.Name = "starling"
	whole.Hashes = []hash{{"SHA-256", fmt.Sprintf("%x", sum)}}
	var ours licence
	ours.License.ID = "Apache-2.0"
	whole.Licenses = []licence{ours}
	for _, key := range []string{"GOOS", "GOARCH", "CGO_ENABLED", "vcs.revision", "vcs.modified"} {
		if v := setting(info, key); v != "" {
			whole.Properties = append(whole.Properties, property{"go:" + key, v})
		}
	}
	b := bill{
		Schema: "http://cyclonedx.org/schema/bom-1.6.schema.json", Format: "CycloneDX", Spec: "1.6", Version: 1,
		Serial:     serial(sum),
		Metadata:   metadata{Timestamp: setting(info, "vcs.time"), Component: whole},
		Components: []component{module("library", "std", strings.TrimPrefix(info.GoVersion, "go"))},
	}
	for _, m := range info.Deps {
		if m.Replace != nil {
			return nil, fmt.Errorf("%s is replaced by %s; what is released replaces nothing", m.Path, m.Replace.Path)
		}
		c := module("library", m.Path, m.Version)
		c.Properties = []property{{"go:sum", m.Sum}}
		b.Components = append(b.Components, c)
	}
	slices.SortFunc(b.Components, func(x, y component) int { return cmp.Compare(x.Ref, y.Ref) })
	uses := dependency{Ref: whole.Ref}
	for _, c := range b.Components {
		uses.Uses = append(uses.Uses, c.Ref)
	}
	b.Dependencies = []dependency{uses}
	text, err := json.MarshalIndent(b, "", "  ")
	return append(text, '\n'), err
}

// module is a component with the name by which tools that know of faults look it up.
func module(kind, path, version string) component {
	url := "pkg:golang/" + path + "@" + version
	return component{Type: kind, Ref: url, Name: path, Version: version, URL: url}
}

// serial is a UUID (version 8: of our own making) that a binary always gets.
func serial(sum [32]byte) string {
	u := sum[:16]
	u[6], u[8] = u[6]&0x0f|0x80, u[8]&0x3f|0x80
	return fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
}
