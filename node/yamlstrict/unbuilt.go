package yamlstrict

import (
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// unbuilt walks what the file says of a key that is not built: only what asks
// for nothing may stand. A section without any such value is refused as a
// whole; told says that this was done above, so that only unknown keys remain
// to be found.
func (d *decoder) unbuilt(at place, n *yaml.Node, told bool) {
	names := d.unbuiltNames(at.pattern)
	if len(names) == 0 {
		if !told {
			d.unbuiltValue(at, n)
		}
		return
	}
	if !d.isSection(at, n, func() []string { return names }) {
		return
	}
	some, all := d.harmless(at.pattern)
	if !told && (!some || len(n.Content) == 0 && !all) {
		d.bad(at, "is not supported yet; leave it out")
		told = true
	}
	for name, value := range d.pairs(at, n, place.field) {
		if slices.Contains(names, name) {
			d.unbuilt(at.field(name), value, told)
		} else {
			d.unknown(at, name, names)
		}
	}
}

func (d *decoder) unbuiltValue(at place, n *yaml.Node) {
	off := d.Unbuilt[at.pattern]
	s, ok := d.written(at, n)
	switch {
	case !ok || off != "" && (s == off || s == "0" && off == "0s"):
	case off != "":
		d.bad(at, "is not supported yet; write %s or leave it out", off)
	default:
		d.bad(at, "is not supported yet; leave it out")
	}
}

// written is a value as Unbuilt would write it, or nothing it could hold.
func (d *decoder) written(at place, n *yaml.Node) (s string, ok bool) {
	switch {
	case n.Kind == yaml.SequenceNode && len(n.Content) == 0:
		return "[]", true
	case n.Kind == yaml.MappingNode && len(n.Content) == 0:
		return "{}", true
	case n.Kind != yaml.ScalarNode || empty(n):
		return "", true
	}
	s, ok = d.text(at, n)
	if s == "" {
		s = `""`
	}
	return s, ok
}

// unbuiltAt tells whether a key that is not built stands at the pattern or
// below it.
func (d *decoder) unbuiltAt(pattern string) bool {
	_, leaf := d.Unbuilt[pattern]
	return leaf || len(d.unbuiltNames(pattern)) > 0
}

// unbuiltNames lists what Unbuilt has directly below a pattern.
func (d *decoder) unbuiltNames(pattern string) []string {
	names := map[string]bool{}
	for key := range d.Unbuilt {
		if rest, ok := strings.CutPrefix(key, join(pattern, "")); ok && !strings.Contains(key, "=") {
			name, _, _ := strings.Cut(rest, ".")
			name, _, _ = strings.Cut(name, "[]")
			names[name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// harmless tells whether some keys, and whether all keys, below a section have
// a value that asks for nothing.
func (d *decoder) harmless(pattern string) (some, all bool) {
	all = true
	for key, off := range d.Unbuilt {
		if strings.HasPrefix(key, pattern+".") {
			some = some || off != ""
			all = all && off != ""
		}
	}
	return some, all
}
