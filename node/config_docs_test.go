package node

import (
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

const reference = "../docs/reference/config.md"

// TestReference holds the reference's tables against the structs: the same
// keys in the same order, with their types and defaults.
func TestReference(t *testing.T) {
	data, err := os.ReadFile(reference)
	if err != nil {
		t.Fatal(err)
	}
	own := map[string]string{ // defaults that are no value
		"node.name": "the host's name", "cluster.bind": "`127.0.0.1:7946`", "cluster.rpc": "`127.0.0.1:7947`", "cluster.bootstrap_expect": "`3`", "listeners[].address": "required", "listeners[].routes": "everything to the only pool",
		"listeners[].routes[].pool": "required", "pools.*.backends": "required", "pools.*.backends[].url": "required",
		"pools.*.backends[].id": "host:port of the url", "pools.*.timeouts.backend_keepalive": "`90s`",
		"pools.*.sticky.key": "`[header:X-Session-ID, cookie:starling]`", "pools.*.retry.methods": "`[GET, HEAD, OPTIONS, PUT, DELETE]`",
	}
	order, values := fullKeys(t)
	var want []string
	for _, key := range order {
		if key == "listeners" {
			continue
		}
		def, ok := own[key]
		if !ok {
			def = "`" + values[key] + "`"
			if values[key] == "" {
				def = "`\"\"`"
			}
		}
		want = append(want, strings.ReplaceAll(key, "*", "NAME")+" | "+typeOf(t, key)+" | "+def)
	}
	var got []string
	for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\| ([^|]+) \\| ([^|]+) \\| [^|]{10,} \\| [^|]*\\|$").FindAllStringSubmatch(string(data), -1) {
		got = append(got, row[1]+" | "+row[2]+" | "+row[3])
	}
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			t.Fatalf("row %d differs\ngot  %v\nwant %v", i+1, at(got, i), at(want, i))
		}
	}
}

func at(rows []string, i int) string {
	if i < len(rows) {
		return rows[i]
	}
	return "nothing"
}

// typeOf says in the reference's words what a key holds.
func typeOf(t *testing.T, key string) string {
	t.Helper()
	typ, tag := reflect.TypeFor[Config](), reflect.StructTag("")
	for _, name := range strings.Split(key, ".") {
		if name == "*" {
			typ = typ.Elem()
			continue
		}
		short, isList := strings.CutSuffix(name, "[]")
		field, ok := typ.FieldByNameFunc(func(n string) bool {
			f, _ := typ.FieldByName(n)
			return f.Tag.Get("yaml") == short
		})
		if !ok {
			t.Fatalf("no field for %s", key)
		}
		if typ, tag = field.Type, field.Tag; isList || typ.Kind() == reflect.Pointer {
			typ = typ.Elem()
		}
	}
	return typeText(typ, tag)
}

func typeText(typ reflect.Type, tag reflect.StructTag) string {
	auto := ""
	if tag.Get("auto") != "" {
		auto = " or auto"
	}
	if tag.Get("off") != "" {
		auto += " or off"
	}
	switch {
	case typ == reflect.TypeFor[time.Duration]():
		return "duration" + auto
	case tag.Get("unit") == "size":
		return "size" + auto
	case tag.Get("enum") != "":
		return strings.ReplaceAll(tag.Get("enum"), ",", " or ")
	case typ.Kind() == reflect.Slice && typ.Elem().Kind() == reflect.String:
		return "list of text"
	}
	return map[reflect.Kind]string{
		reflect.Int: "count", reflect.Int64: "count", reflect.Float64: "number", reflect.Bool: "bool",
		reflect.String: "text", reflect.Slice: "list", reflect.Map: "map of text",
	}[typ.Kind()] + auto
}

// TestReferenceNotYet holds the list of what is not built against its table.
func TestReferenceNotYet(t *testing.T) {
	data, err := os.ReadFile(reference)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(data), "<!-- begin:")
	line, rest, ok2 := strings.Cut(rest, "-->\n")
	_, tail, ok3 := strings.Cut(rest, "<!-- end -->")
	if !ok || !ok2 || !ok3 {
		t.Fatalf("%s has lost its marks", reference)
	}
	var list strings.Builder
	list.WriteString("| key | may be written |\n|---|---|\n")
	for _, key := range slices.Sorted(maps.Keys(notYet())) {
		name, off := strings.ReplaceAll(key, "*", "NAME"), notYet()[key]
		if off != "" {
			off = "`" + off + "`"
		}
		list.WriteString("| `" + strings.Replace(name, "=", ": ", 1) + "` | " + off + " |\n")
	}
	compare(t, reference, head+"<!-- begin:"+line+"-->\n"+list.String()+"<!-- end -->"+tail)
}
