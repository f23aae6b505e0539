package yamlstrict

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"
)

// Encode writes a struct as a file with every key, but those of sections that are
// left out, which decodes to the equal struct. Equal structs give equal bytes.
func Encode(v any) ([]byte, error) {
	var out bytes.Buffer
	dump, err := yaml.NewDumper(&out, yaml.WithIndent(2), yaml.WithCompactSeqIndent(false), yaml.WithLineWidth(-1))
	if err != nil {
		return nil, fmt.Errorf("print configuration: %w", err)
	}
	if err := dump.Dump(node(reflect.ValueOf(v), "")); err != nil {
		return nil, fmt.Errorf("print configuration: %w", err)
	}
	if err := dump.Close(); err != nil {
		return nil, fmt.Errorf("print configuration: %w", err)
	}
	return out.Bytes(), nil
}

func node(v reflect.Value, tag reflect.StructTag) *yaml.Node {
	switch v.Kind() {
	case reflect.Struct:
		n := &yaml.Node{Kind: yaml.MappingNode}
		for i := range v.NumField() {
			field := v.Type().Field(i)
			if field.Type.Kind() == reflect.Pointer && v.Field(i).IsNil() {
				continue
			}
			n.Content = append(n.Content, plain(field.Tag.Get("yaml")), node(v.Field(i), field.Tag))
		}
		return n
	case reflect.Pointer:
		return node(v.Elem(), tag)
	case reflect.Map:
		n := &yaml.Node{Kind: yaml.MappingNode, Style: flowIf(v.Len() == 0)}
		keys := v.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
		for _, k := range keys {
			n.Content = append(n.Content, words(k.String()), node(v.MapIndex(k), ""))
		}
		return n
	case reflect.Slice:
		n := &yaml.Node{Kind: yaml.SequenceNode, Style: flowIf(v.Len() == 0)}
		for i := range v.Len() {
			n.Content = append(n.Content, node(v.Index(i), ""))
		}
		return n
	}
	return scalarNode(v, tag)
}

func scalarNode(v reflect.Value, tag reflect.StructTag) *yaml.Node {
	for _, word := range []string{"auto", "off"} {
		if n := tag.Get(word); n != "" && v.Int() == wordNumber(n) {
			return plain(word)
		}
	}
	switch kindOf(v.Type(), tag) {
	case duration:
		return plain(durationText(time.Duration(v.Int())))
	case size:
		return plain(sizeText(v.Int()))
	case count:
		return plain(strconv.FormatInt(v.Int(), 10))
	case number:
		return plain(strconv.FormatFloat(v.Float(), 'f', -1, 64))
	case truth:
		return plain(strconv.FormatBool(v.Bool()))
	default:
		return words(strings.ReplaceAll(v.String(), "${", "$${"))
	}
}

func plain(s string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Value: s} }

// words is text in quotes, unless it is a word that cannot be taken for
// anything else.
func words(s string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s}
	simple := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_-./:", r)
	}
	if s == "" || strings.HasSuffix(s, ":") || strings.IndexFunc(s, func(r rune) bool { return !simple(r) }) >= 0 {
		n.Style = yaml.DoubleQuotedStyle
	}
	return n
}

func flowIf(empty bool) yaml.Style {
	if empty {
		return yaml.FlowStyle
	}
	return 0
}
