package proxy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
)

func (s fieldState) String() string {
	return [...]string{"unknown", "found", "absent", "malformed"}[s]
}

// scanned hands document over in pieces and says what was made of "model".
func scanned(document string, piece int) (string, *fieldScan) {
	f := newFieldScan("model")
	p := []byte(document)
	for n := 0; ; n = min(n+piece, len(p)) {
		// A copy at each step: nothing may be kept between two.
		if prefix := bytes.Clone(p[:n]); f.scan(prefix) == fieldFound {
			return "found " + string(f.appendValue(nil, prefix)), &f
		}
		if f.state != fieldUnknown || n == len(p) {
			return f.state.String(), &f
		}
	}
}

func TestFieldScan(t *testing.T) {
	deep := func(n int) string {
		return strings.Repeat(`{"a":[`, n/2) + strings.Repeat(`]}`, n/2)
	}
	tests := []struct{ name, document, want string }{
		{"first", `{"model":"a"`, "found a"},
		{"spaced", " \t\r\n{ \"model\" : \"a\" ", "found a"},
		{"behind others", `{"n":-1.5e+3,"t":true,"f":false,"z":null,"s":"x","o":{"model":"no"},"a":[{"model":"no"},[]],"model":"yes"}`, "found yes"},
		{"the first of two", `{"model":"a","model":"b"}`, "found a"},
		{"empty", `{"model":""}`, "found "},
		{"escapes", `{"model":"\"\\\/\b\f\n\r\t\u0041\u00e9\u20AC\ud83d\ude00"}`, "found \"\\/\b\f\n\r\tAé€😀"},
		{"half pairs", `{"model":"\ud83dx\ude00\ud83d\u0041\ud83d\ud83d\ude00"}`, "found \uFFFDx\uFFFD\uFFFDA\uFFFD😀"},
		{"escaped key", `{"\u006dode\u006C":"a"}`, "found a"},
		{"a longer escaped key", `{"\u006d\u006f\u0064\u0065\u006c\u006c":"a"}`, "absent"},
		{"not UTF-8", "{\"model\":\"\xff\xe2\x82\"}", "found \xff\xe2\x82"},
		{"a quote escaped at the end", `{"x":"\\","model":"\\\""}`, `found \"`},
		{"number", `{"model":-12.50e-7 }`, "found -12.50e-7"},
		{"zero", `{"model":0}`, "found 0"},
		{"a number may go on", `{"model":12`, "unknown"},
		{"true", `{"model":true`, "found true"},
		{"false", `{"model":false}`, "found false"},
		{"null", `{"model":null}`, "absent"},
		{"the text null", `{"model":"null"}`, "found null"},
		{"null first", `{"model":null,"model":"b"}`, "absent"},
		{"an object", `{"model":{`, "absent"},
		{"an array", `{"model":[`, "absent"},
		{"other case", `{"Model":"a"}`, "absent"},
		{"a longer name", `{"models":"a","mode":"b"}`, "absent"},
		{"deeper only", `{"a":{"model":"x"}}`, "absent"},
		{"empty object", `{}`, "absent"},
		{"what follows is not read", `{} {"model":"a"}garbage`, "absent"},
		{"behind the field nothing is read", `{"model":"a"garbage`, "found a"},
		{"array", `[{"model":"a"}]`, "absent"},
		{"string", `"model"`, "absent"},
		{"no JSON", `model=a`, "absent"},
		{"byte order mark", "\xEF\xBB\xBF{}", "absent"},
		{"nothing", "", "unknown"},
		{"blanks", " \n", "unknown"},
		{"in the key", `{"mod`, "unknown"},
		{"in the value", `{"model":"a`, "unknown"},
		{"in an escape", `{"model":"a\u00`, "unknown"},
		{"in a literal", `{"model":tru`, "unknown"},
		{"as deep as it may be", `{"x":` + deep(62) + `,"model":"a"}`, "found a"},
		{"too deep", `{"x":` + deep(64) + `,"model":"a"}`, "malformed"},
		{"no key", `{model:"a"}`, "malformed"},
		{"comma first", `{,"model":"a"}`, "malformed"},
		{"comma last", `{"x":1,}`, "malformed"},
		{"two commas", `{"x":1,,"model":"a"}`, "malformed"},
		{"no comma", `{"x":1 "model":"a"}`, "malformed"},
		{"no colon", `{"model" "a"}`, "malformed"},
		{"comma last in an array", `{"x":[1,],"model":"a"}`, "malformed"},
		{"wrong bracket", `{"x":[1},"model":"a"}`, "malformed"},
		{"wrong brace", `{"x":{"y":1],"model":"a"}`, "malformed"},
		{"control byte", "{\"x\":\"a\nb\",\"model\":\"a\"}", "malformed"},
		{"unknown escape", `{"x":"\x41","model":"a"}`, "malformed"},
		{"short escape", `{"x":"\u00g0","model":"a"}`, "malformed"},
		{"single quotes", `{'model':'a'}`, "malformed"},
		{"leading zero", `{"x":01,"model":"a"}`, "malformed"},
		{"plus", `{"x":+1,"model":"a"}`, "malformed"},
		{"point without digits", `{"x":1.,"model":"a"}`, "malformed"},
		{"point first", `{"x":.5,"model":"a"}`, "malformed"},
		{"exponent without digits", `{"x":1e,"model":"a"}`, "malformed"},
		{"exponent sign without digits", `{"x":1e+,"model":"a"}`, "malformed"},
		{"two points", `{"x":1.2.3,"model":"a"}`, "malformed"},
		{"minus alone", `{"x":-,"model":"a"}`, "malformed"},
		{"NaN", `{"x":NaN,"model":"a"}`, "malformed"},
		{"broken literal", `{"x":trap,"model":"a"}`, "malformed"},
		{"comment", `{/**/"model":"a"}`, "malformed"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, piece := range []int{1, 2, 3, 7, len(tt.document) + 1} {
				if got, _ := scanned(tt.document, piece); got != tt.want {
					t.Errorf("in pieces of %d: %q, want %q", piece, got, tt.want)
				}
			}
		})
	}
}

func TestFieldScanDoesNotAllocate(t *testing.T) {
	document := []byte(`{"messages":[{"content":"a \"word\""}],"n":1.5,"str\u0065am":true,"model":"a\u0062c"}`)
	var room [16]byte
	if n := testing.AllocsPerRun(100, func() {
		f := newFieldScan("model")
		for i := range document {
			if f.scan(document[:i+1]) == fieldFound {
				f.appendValue(room[:0], document)
			}
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzFieldScan compares with encoding/json, whose decoder reads as far as it
// must for the field and no further.
func FuzzFieldScan(f *testing.F) {
	for _, s := range []string{
		`{"model":"a"}`, ` {"a":[1,{"b":null}],"model":"\u00e9\ud83d\ude00"}`, `{"model":-1.5E+7}`, `{"x":01}`, `[1]`, `{}`,
		`{"mod\u0065l":true}`, "{\"model\":\"\xff\\ud800\"}", `{"a":{"model":1},"model":null}`, `{"a":"\\\"","model":false`, `{"a":`,
	} {
		f.Add(s, uint8(1))
	}
	f.Fuzz(func(t *testing.T, document string, piece uint8) {
		got, scan := scanned(document, int(piece)+1)
		if scan.at > len(document) {
			t.Fatalf("%d bytes done of %d", scan.at, len(document))
		}
		want := decoded(document)
		if want == "too deep" {
			return
		}
		if value, found := strings.CutPrefix(got, "found "); found {
			got = "found " + asJSON(value)
		}
		if got != want {
			t.Fatalf("%q; encoding/json: %q", got, want)
		}
	})
}

// asJSON is s with each byte that is no UTF-8 replaced, as encoding/json does.
func asJSON(s string) string { return string([]rune(s)) }

// decoded is what encoding/json makes of the field "model".
func decoded(document string) string {
	if strings.Count(document, "[")+strings.Count(document, "{") > maxNesting {
		return "too deep"
	}
	start := strings.TrimLeft(document, " \t\r\n")
	if start != "" && start[0] != '{' {
		return "absent"
	}
	d := json.NewDecoder(strings.NewReader(document))
	d.UseNumber()
	if _, err := d.Token(); err != nil {
		return ofError(err)
	}
	for {
		key, err := d.Token()
		switch {
		case err != nil:
			return ofError(err)
		case key == json.Delim('}'):
			return "absent"
		}
		var value any
		if key == "model" && startsNested(d, document) {
			return "absent"
		}
		if err := d.Decode(&value); err != nil {
			return ofError(err)
		}
		if key != "model" {
			continue
		}
		if _, ok := value.(json.Number); ok && int(d.InputOffset()) == len(document) {
			return "unknown" // a longer number may be meant
		}
		if value == nil {
			return "absent"
		}
		return fmt.Sprint("found ", value)
	}
}

// startsNested tells whether the value behind the colon is an object or array.
func startsNested(d *json.Decoder, document string) bool {
	rest := strings.TrimLeft(document[d.InputOffset():], " \t\r\n")
	rest, colon := strings.CutPrefix(rest, ":")
	rest = strings.TrimLeft(rest, " \t\r\n")
	return colon && rest != "" && (rest[0] == '{' || rest[0] == '[')
}

func ofError(err error) string {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return "unknown"
	}
	return "malformed"
}
