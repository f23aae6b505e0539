package yamlstrict

import (
	"cmp"
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

type decoder struct {
	Form
	*Report
	fresh map[reflect.Type]reflect.Value // Elements by type
	room  int                            // bytes that variables and files may still put in
}

// value lays n over v, which holds the default; tag is the field's.
func (d *decoder) value(at place, n *yaml.Node, v reflect.Value, tag reflect.StructTag) {
	switch v.Kind() {
	case reflect.Pointer:
		if d.isSection(at, n, func() []string { return d.names(at, v.Type().Elem()) }) {
			v.Set(reflect.New(v.Type().Elem()))
			v.Elem().Set(d.element(v.Type().Elem()))
			d.section(at, n, v.Elem())
		}
	case reflect.Struct:
		if d.isSection(at, n, func() []string { return d.names(at, v.Type()) }) {
			d.section(at, n, v)
		}
	case reflect.Map:
		if d.is(at, n, yaml.MappingNode, func() string { return "a section of NAME: VALUE" }) {
			d.table(at, n, v)
		}
	case reflect.Slice:
		if d.is(at, n, yaml.SequenceNode, func() string { return "a list, even of one" }) {
			d.list(at, n, v, tag)
		}
	default:
		if d.is(at, n, yaml.ScalarNode, func() string { return wanted(v.Type(), tag) }) {
			d.scalar(at, n, v, tag)
		}
	}
}

func (d *decoder) section(at place, n *yaml.Node, v reflect.Value) {
	fields := fieldsOf(v.Type())
	for name, value := range d.pairs(at, n, place.field) {
		sub := at.field(name)
		switch i, ok := fields[name]; {
		case ok:
			d.value(sub, value, v.Field(i), v.Type().Field(i).Tag)
		case d.unbuiltAt(sub.pattern):
			d.unbuilt(sub, value, false)
		default:
			d.unknown(at, name, d.names(at, v.Type()))
		}
	}
}

func (d *decoder) table(at place, n *yaml.Node, v reflect.Value) {
	v.SetZero()
	for name, value := range d.pairs(at, n, place.entry) {
		if v.IsNil() {
			v.Set(reflect.MakeMap(v.Type()))
		}
		e := d.element(v.Type().Elem())
		d.value(at.entry(name), value, e, "")
		v.SetMapIndex(reflect.ValueOf(name), e)
	}
}

func (d *decoder) list(at place, n *yaml.Node, v reflect.Value, tag reflect.StructTag) {
	v.SetZero()
	for i, item := range n.Content {
		sub, e := at.element(i), d.element(v.Type().Elem())
		d.lines[sub.key] = item.Line
		if short := tag.Get("scalar"); short != "" && item.Kind == yaml.ScalarNode && !empty(item) {
			key := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: short, Line: item.Line}
			item = &yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{key, item}, Line: item.Line}
		}
		d.value(sub, item, e, "")
		v.Set(reflect.Append(v, e))
	}
}

// element makes a new value with its defaults for a list, a map or a pointer.
func (d *decoder) element(t reflect.Type) reflect.Value {
	e := reflect.New(t).Elem()
	if def, ok := d.fresh[t]; ok {
		e.Set(def)
	} else if t.Kind() == reflect.Struct {
		panic(fmt.Sprintf("BUG: no defaults for elements of type %v", t))
	}
	return e
}

func (d *decoder) scalar(at place, n *yaml.Node, v reflect.Value, tag reflect.StructTag) {
	s, ok := d.text(at, n)
	if !ok {
		return
	}
	shown, want := quote(n.Value), wanted(v.Type(), tag)
	quoted := n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0
	switch {
	case s != n.Value:
		shown += " (once replaced)"
	case quoted && !stands(s, tag) && kindOf(v.Type(), tag) >= count:
		d.bad(at, "%s is text; write %s, without quotes", shown, want)
		return
	}
	fault := set(v, s, tag)
	if fault == "" {
		return
	}
	if _, ok := d.Unbuilt[at.pattern+"="+s]; ok {
		fault = "is not supported yet"
	}
	d.bad(at, "%s %s; write %s", shown, fault, want)
}

// text is a scalar with its variables replaced.
func (d *decoder) text(at place, n *yaml.Node) (s string, ok bool) {
	if n.ShortTag() != "!!str" {
		return n.Value, true
	}
	s, err := d.expand(n.Value)
	if err != nil {
		d.bad(at, "%v", err)
	}
	return s, err == nil
}

// pairs walks a mapping. A key that no struct or map could hold once is
// reported and left out.
func (d *decoder) pairs(at place, n *yaml.Node, below func(place, string) place) iter.Seq2[string, *yaml.Node] {
	return func(yield func(string, *yaml.Node) bool) {
		seen := map[string]int{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			k := n.Content[i]
			sub := below(at, k.Value)
			first, twice := seen[k.Value]
			switch {
			case k.Kind != yaml.ScalarNode:
				d.add(k.Line, cmp.Or(at.key, fileKey), "has a key that is no text; write NAME: VALUE")
			case k.ShortTag() == "!!merge":
				d.add(k.Line, sub.key, "merging is not supported; write the keys out")
			case twice:
				d.add(k.Line, sub.key, "stands twice, first on line %d; keep one", first)
				d.spoil(sub.key)
			default:
				seen[k.Value] = k.Line
				d.lines[sub.key] = k.Line
				if !yield(k.Value, n.Content[i+1]) {
					return
				}
			}
		}
	}
}

// is reports a node of another kind than the one wanted.
func (d *decoder) is(at place, n *yaml.Node, kind yaml.Kind, want func() string) bool {
	switch custom := strings.HasPrefix(n.Tag, "!") && !strings.HasPrefix(n.Tag, "!!"); {
	case n.Kind == yaml.AliasNode:
		d.bad(at, "*%s: aliases are not supported; write the value out", n.Value)
	case custom || n.ShortTag() == "!!binary":
		d.bad(at, "tag %s is not supported; write the value alone", n.Tag)
	case empty(n):
		d.bad(at, "is empty; write %s, or leave it out", want())
	case n.Kind != kind:
		d.bad(at, "is %s; write %s", kindText(n), want())
	default:
		return true
	}
	return false
}

func (d *decoder) isSection(at place, n *yaml.Node, names func() []string) bool {
	return d.is(at, n, yaml.MappingNode, func() string {
		return "a section with keys out of " + strings.Join(names(), ", ")
	})
}

func kindText(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a section"
	case yaml.SequenceNode:
		return "a list"
	}
	return quote(n.Value)
}

func (d *decoder) unknown(at place, name string, known []string) {
	advice, near := didYouMean(name, known)
	d.bad(at.field(name), "is no known key; %s", advice)
	if near != "" {
		d.spoil(at.field(near).key) // it is not missing, it is misspelt
	}
}

// names lists the keys that a section knows, the struct's own first.
func (d *decoder) names(at place, t reflect.Type) []string {
	var out []string
	for i := range t.NumField() {
		out = append(out, t.Field(i).Tag.Get("yaml"))
	}
	for _, name := range d.unbuiltNames(at.pattern) {
		if !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

func fieldsOf(t reflect.Type) map[string]int {
	fields := map[string]int{}
	for i := range t.NumField() {
		name := t.Field(i).Tag.Get("yaml")
		if name == "" {
			panic(fmt.Sprintf("BUG: field %s of %v has no yaml tag", t.Field(i).Name, t))
		}
		fields[name] = i
	}
	return fields
}
