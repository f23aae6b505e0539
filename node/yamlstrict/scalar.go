package yamlstrict

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// kind is how a scalar is written.
type kind int

const (
	text kind = iota
	duration
	size
	count
	number
	truth
)

func kindOf(t reflect.Type, tag reflect.StructTag) kind {
	switch {
	case t == reflect.TypeFor[time.Duration]():
		return duration
	case t.Kind() == reflect.Int64 && tag.Get("unit") == "size":
		return size
	case t.Kind() == reflect.Int || t.Kind() == reflect.Int64:
		return count
	case t.Kind() == reflect.Float64:
		return number
	case t.Kind() == reflect.Bool:
		return truth
	case t.Kind() == reflect.String:
		return text
	}
	panic(fmt.Sprintf("BUG: a configuration has a field of type %v, which no file can fill", t))
}

// wanted says what to write for a field.
func wanted(t reflect.Type, tag reflect.StructTag) string {
	var want string
	switch kindOf(t, tag) {
	case duration:
		want = "a duration such as 500ms, 2s or 1m30s"
	case size:
		want = "a size such as 64KiB, 10MiB or 1GiB, or a bare number of bytes"
	case count:
		want = "a whole number such as 3"
	case number:
		want = "a number such as 0.5"
	case truth:
		want = "true or false"
	case text:
		want = "text"
		if words := tag.Get("enum"); words != "" {
			want = strings.ReplaceAll(words, ",", " or ")
		}
	}
	for _, word := range []string{"auto", "off"} {
		if tag.Get(word) != "" {
			want += ", or " + word
		}
	}
	return want
}

// set parses s into v. The fault that it returns lacks its subject, the value.
func set(v reflect.Value, s string, tag reflect.StructTag) (fault string) {
	if stands(s, tag) {
		v.SetInt(wordNumber(tag.Get(s)))
		return ""
	}
	switch kindOf(v.Type(), tag) {
	case duration:
		return setInt(v, s, parseDuration)
	case size:
		return setInt(v, s, parseSize)
	case count:
		return setInt(v, s, func(s string) (int64, string) { return parseCount(s, v.Type().Bits()) })
	case number:
		f, err := strconv.ParseFloat(s, 64)
		if err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
			return "is no number"
		}
		if f < 0 {
			return "is negative"
		}
		v.SetFloat(f)
	case truth:
		if s != "true" && s != "false" {
			return "is neither true nor false"
		}
		v.SetBool(s == "true")
	case text:
		if words := tag.Get("enum"); words != "" && !slices.Contains(strings.Split(words, ","), s) {
			return "is unknown"
		}
		v.SetString(s)
	}
	return ""
}

func setInt(v reflect.Value, s string, parse func(string) (int64, string)) (fault string) {
	n, fault := parse(s)
	if fault == "" && n < 0 {
		fault = "is negative"
	}
	if fault == "" {
		v.SetInt(n)
	}
	return fault
}

func parseDuration(s string) (int64, string) {
	if _, err := strconv.ParseFloat(s, 64); err == nil && s != "0" {
		return 0, "has no unit"
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		return 0, "is no duration"
	}
	return int64(d), ""
}

func parseCount(s string, bits int) (int64, string) {
	n, err := strconv.ParseInt(s, 10, bits)
	if err != nil {
		return 0, "is no whole number"
	}
	return n, ""
}

func parseSize(s string) (int64, string) {
	digits, shift := s, 0
	for _, u := range units() {
		if d, ok := strings.CutSuffix(s, u.name); ok {
			digits, shift = d, u.shift
		}
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	switch {
	case err != nil:
		return 0, "is no size"
	case n > math.MaxInt64>>shift:
		return 0, "is too large"
	}
	return n << shift, ""
}

type unit struct {
	name  string
	shift int
}

func units() []unit { return []unit{{"GiB", 30}, {"MiB", 20}, {"KiB", 10}} }

func sizeText(n int64) string {
	for _, u := range units() {
		if n != 0 && n%(1<<u.shift) == 0 {
			return strconv.FormatInt(n>>u.shift, 10) + u.name
		}
	}
	return strconv.FormatInt(n, 10)
}

// durationText leaves out the zeros that Go writes after a full minute or hour.
func durationText(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// stands says whether s is a word that the tag has stand for a number.
func stands(s string, tag reflect.StructTag) bool {
	return (s == "auto" || s == "off") && tag.Get(s) != ""
}

func wordNumber(tag string) int64 {
	n, err := strconv.ParseInt(tag, 10, 64)
	if err != nil {
		panic(fmt.Sprintf("BUG: the tag of a word, %q, is no number", tag))
	}
	return n
}
