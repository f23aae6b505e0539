// Package yamlstrict lays a YAML file over a struct of defaults and says all
// that is wrong with the file at once, each fault with its line and key. It
// promises that nothing in a file is passed over: a key is decoded, known but
// not built, or a fault. It must not know any section of any file.
//
// Field tags: yaml:"name"; unit:"size" for bytes; auto:"N" takes the word auto
// for the number N, and off:"N" the word off; enum:"a,b"; scalar:"url" on a list of structs makes a bare
// value short for {url: value}. A pointer to a struct is a section that may be
// left out, and has its defaults once it is there. Numbers below zero are faults
// everywhere.
package yamlstrict

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

// Form is what the struct itself does not say about a file.
type Form struct {
	// Elements holds one value with every default for each struct type that
	// stands in a list or a map, or behind a pointer.
	Elements []any

	// Unbuilt holds the keys that are known but not built, as patterns:
	// pools.*.health.enabled, listeners[].tls.cert_file. With each goes the
	// value, as YAML, that asks for nothing and may therefore stand; "" if there
	// is none. A word of an enum that is not built is KEY=WORD.
	Unbuilt map[string]string

	// Env looks up the variable of ${NAME}.
	Env func(name string) (string, bool)
}

// Decode lays data over into, a pointer to a struct of defaults; name is what
// faults call the file. Read is false if the file is no YAML at all: then into
// is as it was, and there is nothing to validate.
func (f Form) Decode(name string, data []byte, into any) (r *Report, read bool) {
	d := &decoder{Form: f, Report: newReport(name), fresh: map[reflect.Type]reflect.Value{}, room: maxInserts}
	for _, e := range f.Elements {
		d.fresh[reflect.TypeOf(e)] = reflect.ValueOf(e)
	}
	root := d.parse(data)
	if root == nil {
		return d.Report, false
	}
	if !empty(root) {
		d.value(place{}, root, reflect.ValueOf(into).Elem(), "")
	}
	return d.Report, !d.wrong[""]
}

// fileKey stands where a fault concerns no key but the file.
const fileKey = "yaml"

// parse returns the only document of a file, or nil if it is none.
func (d *decoder) parse(data []byte) *yaml.Node {
	if at := badUTF8(data); at >= 0 {
		d.add(1+bytes.Count(data[:at], []byte("\n")), fileKey, "byte 0x%02x is not UTF-8; save the file as UTF-8", data[at])
		return nil
	}
	load, err := yaml.NewLoader(bytes.NewReader(data))
	if err != nil {
		d.syntax(err, data)
		return nil
	}
	var doc, next yaml.Node
	switch err := load.Load(&doc); {
	case errors.Is(err, io.EOF):
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Line: 1}
	case err != nil:
		d.syntax(err, data)
		return nil
	}
	switch err := load.Load(&next); {
	case err == nil:
		d.add(next.Line, fileKey, "a second document begins; keep one, without --- lines")
	case !errors.Is(err, io.EOF):
		d.syntax(err, data)
		return nil
	}
	if doc.Kind == yaml.DocumentNode && len(doc.Content) == 1 {
		return doc.Content[0]
	}
	return &doc
}

func badUTF8(data []byte) int {
	for i := 0; i < len(data); {
		r, n := utf8.DecodeRune(data[i:])
		if r == utf8.RuneError && n == 1 {
			return i
		}
		i += n
	}
	return -1
}

func (d *decoder) syntax(err error, data []byte) {
	var at *yaml.LoadError
	if !errors.As(err, &at) {
		d.add(1, fileKey, "%v; write KEY: VALUE lines", err)
		return
	}
	line, advice := max(1, at.Mark.Line), "write KEY: VALUE, nest by two spaces, and quote text that holds any of : # { } [ ] , & * ! | > @ %"
	if tabbed(data, line) {
		advice = "indent with spaces, not with tabs"
	}
	d.add(line, fileKey, "%s; %s", at.Message, advice)
}

// tabbed tells whether a line is indented with tabs, which YAML forbids.
func tabbed(data []byte, line int) bool {
	for range line - 1 {
		_, data, _ = bytes.Cut(data, []byte("\n"))
	}
	text := bytes.TrimLeft(data, " ")
	return len(text) > 0 && text[0] == '\t'
}

// empty tells whether a node holds no value at all.
func empty(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

// place is where the walk is: as faults name it, and as Unbuilt does.
type place struct{ key, pattern string }

func (p place) field(name string) place { return place{Join(p.key, name), join(p.pattern, name)} }
func (p place) entry(name string) place { return place{Join(p.key, name), join(p.pattern, "*")} }
func (p place) element(i int) place {
	return place{fmt.Sprintf("%s[%d]", p.key, i), p.pattern + "[]"}
}

// Join is the key of a name below another key. A name that would make the key
// hard to read is quoted and cut.
func Join(key, name string) string {
	plain := func(r rune) bool { return r > ' ' && r != ':' && r != '"' && r != utf8.RuneError && r < 0x7f }
	if name == "" || len(name) > maxShown || strings.IndexFunc(name, func(r rune) bool { return !plain(r) }) >= 0 {
		name = quote(name)
	}
	return join(key, name)
}

func join(key, name string) string {
	if key == "" {
		return name
	}
	return key + "." + name
}
