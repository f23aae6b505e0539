package yamlstrict

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

type file struct {
	Name  string          `yaml:"name"`
	Mode  string          `yaml:"mode" enum:"fast,slow"`
	Wait  time.Duration   `yaml:"wait"`
	Late  time.Duration   `yaml:"late" auto:"-1"`
	Room  int64           `yaml:"room" unit:"size"`
	Limit int             `yaml:"limit" auto:"-1" off:"0"`
	Share float64         `yaml:"share"`
	On    bool            `yaml:"on"`
	Tags  []string        `yaml:"tags"`
	Parts []part          `yaml:"parts" scalar:"url"`
	Named map[string]part `yaml:"named"`
	Maybe *part           `yaml:"maybe"`
}

type part struct {
	URL    string            `yaml:"url"`
	Weight int               `yaml:"weight"`
	Marks  map[string]string `yaml:"marks"`
}

func defaults() file {
	return file{Name: "x", Mode: "fast", Wait: time.Second, Late: -1, Room: 1 << 10, Limit: -1, Share: 0.5, Tags: []string{"a"}}
}

func form() Form {
	return Form{
		Elements: []any{part{Weight: 1}},
		Unbuilt: map[string]string{
			"mode=wild": "", "zone": `""`, "log.path": `""`, "log.every": "0s", "log.list": "[]", "log.map": "{}",
			"cluster.bind": "", "cluster.tls.cert": "", "parts[].cap": "0", "named.*.deep.er": "",
			"harmless.a": "0", "harmless.b": "1",
		},
		Env: func(name string) (string, bool) {
			v, ok := map[string]string{"TWO": "2", "WORD": "a ${TWO} b", "BAD": "\xff", "MUCH": strings.Repeat("x", maxInserts)}[name]
			return v, ok
		},
	}
}

// decode returns what a text loads to, and its faults as LINE: KEY: TEXT lines.
func decode(text string) (file, string) {
	f := defaults()
	r, _ := form().Decode("f", []byte(text), &f)
	var out []string
	for _, fault := range r.Faults() {
		out = append(out, strings.TrimPrefix(fault.String(), "f:"))
	}
	return f, strings.Join(out, "\n")
}

func TestDecode(t *testing.T) {
	for _, tt := range []struct {
		text string
		want func(*file)
	}{
		{"", func(*file) {}},
		{"# only a comment\n---\n", func(*file) {}},
		{"name: y", func(f *file) { f.Name = "y" }},
		{"name: 12", func(f *file) { f.Name = "12" }},
		{"name: 010", func(f *file) { f.Name = "010" }},
		{"name: on", func(f *file) { f.Name = "on" }},
		{"name: 'null'", func(f *file) { f.Name = "null" }},
		{"mode: slow", func(f *file) { f.Mode = "slow" }},
		{"wait: 1m30s", func(f *file) { f.Wait = 90 * time.Second }},
		{"wait: '2s'", func(f *file) { f.Wait = 2 * time.Second }},
		{"wait: 0", func(f *file) { f.Wait = 0 }},
		{"late: 5s", func(f *file) { f.Late = 5 * time.Second }},
		{"late: auto", func(*file) {}},
		{"room: 2048", func(f *file) { f.Room = 2048 }},
		{"room: 3KiB", func(f *file) { f.Room = 3 << 10 }},
		{"room: '4MiB'", func(f *file) { f.Room = 4 << 20 }},
		{"room: 5GiB", func(f *file) { f.Room = 5 << 30 }},
		{"room: 0", func(f *file) { f.Room = 0 }},
		{"limit: 7", func(f *file) { f.Limit = 7 }},
		{`limit: "auto"`, func(*file) {}},
		{"limit: off", func(f *file) { f.Limit = 0 }},
		{"maybe: {}", func(f *file) { f.Maybe = &part{Weight: 1} }},
		{"maybe: {url: u}", func(f *file) { f.Maybe = &part{URL: "u", Weight: 1} }},
		{"share: 1e-3", func(f *file) { f.Share = 0.001 }},
		{"on: true", func(f *file) { f.On = true }},
		{"tags: [b, c]", func(f *file) { f.Tags = []string{"b", "c"} }},
		{"tags: []", func(f *file) { f.Tags = nil }},
		{"parts: [u, {url: v, weight: 3}, {}]", func(f *file) { f.Parts = []part{{URL: "u", Weight: 1}, {URL: "v", Weight: 3}, {Weight: 1}} }},
		{"named: {a: {url: u}, b.c: {marks: {k: v}}}", func(f *file) {
			f.Named = map[string]part{"a": {URL: "u", Weight: 1}, "b.c": {Weight: 1, Marks: map[string]string{"k": "v"}}}
		}},
		{"name: &anchor y", func(f *file) { f.Name = "y" }},
		{`{"name": "y", "limit": 3}`, func(f *file) { f.Name, f.Limit = "y", 3 }},
		{"zone: ''\nlog: {path: '', every: 0, list: [], map: {}}\nharmless: {}", func(*file) {}},
		{"log: {every: 0s}\nparts: [{cap: 0}]", func(f *file) { f.Parts = []part{{Weight: 1}} }},
		{"limit: ${TWO}\nname: '<${TWO}${TWO}>'\ntags: ['${WORD}']", func(f *file) {
			f.Limit, f.Name, f.Tags = 2, "<22>", []string{"a ${TWO} b"} // what was put in is not looked at again
		}},
		{"name: $${TWO} $TWO $ $$", func(f *file) { f.Name = "${TWO} $TWO $ $$" }},
		{"log: {every: '${TWO}'}", nil},
	} {
		want := defaults()
		got, faults := decode(tt.text)
		if tt.want == nil {
			if faults == "" {
				t.Errorf("%q is accepted", tt.text)
			}
			continue
		}
		tt.want(&want)
		if faults != "" || !reflect.DeepEqual(got, want) {
			t.Errorf("%q\ngot  %+v %s\nwant %+v", tt.text, got, faults, want)
		}
	}
}

func TestFaults(t *testing.T) {
	const dur, size, whole = "write a duration such as 500ms, 2s or 1m30s", "write a size such as 64KiB, 10MiB or 1GiB, or a bare number of bytes", "write a whole number such as 3"
	for _, tt := range []struct{ text, want string }{
		{"nmae: y", "1: nmae: is no known key; did you mean name?"},
		{"Name: y", "1: Name: is no known key; did you mean name?"},
		{"lgo: {}", "1: lgo: is no known key; did you mean log?"},
		{"log: {paht: x}", "1: log.paht: is no known key; did you mean path?"},
		{"parts:\n- colour: x", "2: parts[0].colour: is no known key; write one of url, weight, marks, cap"},
		{"'a b: c': 1", `1: "a b: c": is no known key; write one of name, mode, wait, late, room, limit, share, on, tags, parts, named, maybe, cluster, harmless, log, zone`},
		{"{name: y, mode: wild}", `1: mode: "wild" is not supported yet; write fast or slow`},
		{"mode: best", `1: mode: "best" is unknown; write fast or slow`},
		{"wait: 5", `1: wait: "5" has no unit; ` + dur},
		{"wait: 1.5", `1: wait: "1.5" has no unit; ` + dur},
		{"wait: soon", `1: wait: "soon" is no duration; ` + dur},
		{"wait: 300000h", ""},
		{"wait: 3000000h", `1: wait: "3000000h" is no duration; ` + dur},
		{"wait: -1s", `1: wait: "-1s" is negative; ` + dur},
		{"late: -1", `1: late: "-1" has no unit; ` + dur + ", or auto"},
		{"room: 1KB", `1: room: "1KB" is no size; ` + size},
		{"room: 1 KiB", `1: room: "1 KiB" is no size; ` + size},
		{"room: -1KiB", `1: room: "-1KiB" is negative; ` + size},
		{"room: 8589934592GiB", `1: room: "8589934592GiB" is too large; ` + size},
		{"room: auto", `1: room: "auto" is no size; ` + size},
		{"limit: -1", `1: limit: "-1" is negative; ` + whole + ", or auto, or off"},
		{"limit: 0x10", `1: limit: "0x10" is no whole number; ` + whole + ", or auto, or off"},
		{"limit: '3'", `1: limit: "3" is text; ` + whole + ", or auto, or off, without quotes"},
		{"share: .nan", `1: share: ".nan" is no number; write a number such as 0.5`},
		{"share: nan", `1: share: "nan" is no number; write a number such as 0.5`},
		{"share: -0.1", `1: share: "-0.1" is negative; write a number such as 0.5`},
		{"on: yes", `1: on: "yes" is neither true nor false; write true or false`},
		{"on: [true]", "1: on: is a list; write true or false"},
		{"tags: a", `1: tags: is "a"; write a list, even of one`},
		{"tags: [a, ~, {}]", "1: tags[1]: is empty; write text, or leave it out\n1: tags[2]: is a section; write text"},
		{"parts: {url: u}", "1: parts: is a section; write a list, even of one"},
		{"maybe: u", `1: maybe: is "u"; write a section with keys out of url, weight, marks`},
		{"maybe: ", "1: maybe: is empty; write a section with keys out of url, weight, marks, or leave it out"},
		{"maybe: {wieght: 3}", "1: maybe.wieght: is no known key; did you mean weight?"},
		{"named: [a]", "1: named: is a list; write a section of NAME: VALUE"},
		{"named: {a: u}", `1: named.a: is "u"; write a section with keys out of url, weight, marks, deep`},
		{"name:\nmode: slow", "1: name: is empty; write text, or leave it out"},
		{"name: y\nmode: slow\nname: z", "3: name: stands twice, first on line 1; keep one"},
		{"name: !mine y", "1: name: tag !mine is not supported; write the value alone"},
		{"name: !!binary eA==", "1: name: tag !!binary is not supported; write the value alone"},
		{"tags: !!set [a]", ""},
		{"name: &a y\ntags: [*a]", "2: tags[0]: *a: aliases are not supported; write the value out"},
		{"named:\n  a: &a {url: u}\n  b:\n    <<: *a", "4: named.b.<<: merging is not supported; write the keys out"},
		{"? [a]\n: b", "1: yaml: has a key that is no text; write NAME: VALUE"},
		{"[a]", "1: yaml: is a list; write a section with keys out of name, mode, wait, late, room, limit, share, on, tags, parts, named, maybe, cluster, harmless, log, zone"},
		{"name: y\n---\nname: z", "2: yaml: a second document begins; keep one, without --- lines"},
		{"zone: eu", `1: zone: is not supported yet; write "" or leave it out`},
		{"zone:", `1: zone: is not supported yet; write "" or leave it out`},
		{"cluster: {bind: x, tls: {crt: y}}", "1: cluster: is not supported yet; leave it out\n1: cluster.tls.crt: is no known key; did you mean cert?"},
		{"cluster: {}", "1: cluster: is not supported yet; leave it out"},
		{"cluster: 1", `1: cluster: is "1"; write a section with keys out of bind, tls`},
		{"log: {path: x, list: [a], map: {a: b}}", "1: log.path: is not supported yet; write \"\" or leave it out\n1: log.list: is not supported yet; write [] or leave it out\n1: log.map: is not supported yet; write {} or leave it out"},
		{"parts:\n- url: u\n  cap: 3", "3: parts[0].cap: is not supported yet; write 0 or leave it out"},
		{"named: {a: {deep: {er: 1}}}", "1: named.a.deep: is not supported yet; leave it out"},
		{"name: ${NONE}", "1: name: variable NONE is not set; set it in the environment, or write the value here"},
		{"name: ${BAD}", "1: name: variable BAD is not UTF-8; set it to text"},
		{"name: ${", "1: name: has a ${ without }; write ${NAME} or ${file:PATH}, or $${ for the characters themselves"},
		{"name: ${2}", "1: name: ${2} names no variable; write ${NAME} or ${file:PATH}, or $${ for the characters themselves"},
		{"limit: ${WORD}", `1: limit: "${WORD}" (once replaced) is no whole number; ` + whole + ", or auto, or off"},
		{"zone: ${NONE}", "1: zone: variable NONE is not set; set it in the environment, or write the value here"},
		{"tags: ['${MUCH}', '${TWO}']", "1: tags[1]: all ${} of the file put in more than 1MiB; write less"},
		{"limit: " + strings.Repeat("x", 100), `1: limit: "` + strings.Repeat("x", maxShown) + `"... is no whole number; ` + whole + ", or auto, or off"},
		{"name: y\n\xff", "2: yaml: byte 0xff is not UTF-8; save the file as UTF-8"},
	} {
		if _, got := decode(tt.text); got != tt.want {
			t.Errorf("%q\ngot  %s\nwant %s", tt.text, got, tt.want)
		}
	}
}

// TestSyntax: the line that is wrong is named, not where its section began.
func TestSyntax(t *testing.T) {
	for _, tt := range []struct {
		text string
		line int
		want string
	}{
		{"named:\n  a:\n    url: u\n   weight: 1\nname: y\n", 4, "write KEY: VALUE"},
		{"name: y\ntags: [a, b\non: true\n", 3, "write KEY: VALUE"},
		{"name: y\nmode: a: b\non: true\n", 2, "write KEY: VALUE"},
		{"name: y\nnamed:\n\ta: {}\n", 3, "indent with spaces"},
		{"name: y\nmode: @x\n", 2, "write KEY: VALUE"},
		{"name: y\ntags: [*none]\n", 2, "write KEY: VALUE"},
		{"name: \"y\\q\"\n", 1, "write KEY: VALUE"},
		{"name: y\n---\ntags: [a\n", 4, "write KEY: VALUE"},
		{strings.Repeat("[", 20000), 1, "write KEY: VALUE"},
	} {
		f := defaults()
		r, read := form().Decode("f", []byte(tt.text), &f)
		got := r.Faults()
		if read || len(got) != 1 || got[0].Line != tt.line || got[0].Key != fileKey || !strings.Contains(got[0].Text, tt.want) {
			t.Errorf("%.60q: %v (read %v), want one fault on line %d with %q", tt.text, got, read, tt.line, tt.want)
		}
		if !reflect.DeepEqual(f, defaults()) {
			t.Errorf("%.60q changed the defaults", tt.text)
		}
	}
}

func TestFileInsertion(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, tt := range []struct{ path, want, fault string }{
		{path: write("one", "secret\n"), want: "secret"},
		{path: write("two", "a\n\n"), want: "a\n"},
		{path: write("crlf", "a\r\n"), want: "a"},
		{path: write("bare", "${TWO}"), want: "${TWO}"},
		{path: write("full", strings.Repeat("x", maxInsert)), want: strings.Repeat("x", maxInsert)},
		{path: write("long", strings.Repeat("x", maxInsert+1)), fault: "is longer than 64KiB"},
		{path: write("bytes", "\xfe"), fault: "is not UTF-8"},
		{path: filepath.Join(dir, "none"), fault: "cannot be read: no such file"},
		{path: dir, fault: "is no regular file"},
		{path: "", fault: "cannot be read"},
	} {
		f, faults := decode(fmt.Sprintf("name: '${file:%s}'", tt.path))
		switch {
		case tt.fault == "" && (faults != "" || f.Name != tt.want):
			t.Errorf("%s: %.40q %s, want %.40q", tt.path, f.Name, faults, tt.want)
		case !strings.Contains(faults, tt.fault) || tt.fault != "" && !strings.HasPrefix(faults, "1: name: "):
			t.Errorf("%s: %s, want a fault with %q", tt.path, faults, tt.fault)
		}
	}
}

// TestReport: what a validator finds gets the nearest line, and what follows
// from a fault of the walk is passed over.
func TestReport(t *testing.T) {
	f := defaults()
	r, read := form().Decode("f", []byte("parts:\n  - url: u\n  - wieght: 2\nnamed:\n  a:\n    weight: x\nlimit: no\n"), &f)
	if !read {
		t.Fatal("not read")
	}
	before := len(r.Faults())
	for _, key := range []string{"limit", "named.a.weight", "named.a", "parts[1].weight", "parts"} {
		if r.Fault(key, "follows"); len(r.Faults()) != before {
			t.Errorf("a second fault at %s is reported", key)
		}
	}
	if !r.Wrong("named.a.weight.deeper") || r.Wrong("named.a.url") || r.Wrong("parts[0]") {
		t.Error("Wrong must hold at the key and below it alone")
	}
	for key, line := range map[string]int{"parts[0].url": 2, "parts[0].weight": 2, "parts[7].url": 1, "named.a.url": 5, "named.b": 4, "name": 1} {
		r.Fault(key, "is odd")
		r.Fault(key, "is odd again")
		found := 0
		for _, fault := range r.Faults() {
			if fault.Key == key && fault.Text == "is odd" && fault.Line == line {
				found++
			}
		}
		if found != 1 {
			t.Errorf("%s: found %d times on line %d, want once: %v", key, found, line, r.Faults())
		}
	}
}

func TestFaultsAreBounded(t *testing.T) {
	_, faults := decode(strings.Repeat("- x\n", 3) + "")
	if strings.Count(faults, "\n") != 0 {
		t.Errorf("a list for a file: %s", faults)
	}
	_, faults = decode("tags:\n" + strings.Repeat("- {}\n", maxFaults+50))
	lines := strings.Split(faults, "\n")
	if len(lines) != maxFaults+1 || lines[maxFaults] != "101: yaml: 50 more faults are not listed; mend these first" {
		t.Errorf("%d lines, the last %q", len(lines), lines[len(lines)-1])
	}
}

func TestEncode(t *testing.T) {
	f := defaults()
	f.Wait, f.Late, f.Room, f.Share = 90*time.Minute, time.Hour, 1<<20, 0.25
	f.Name, f.Tags = "a ${b} $${c}", []string{"true", "1", "null", "~", "", "a: b", "#", "-", "---", "x:", "a:b", "\x00\n\t", "\u2028\ufeff é", "12:30", "<<", "0o7", "1e3", "."}
	f.Parts = []part{{URL: "http://h:1", Weight: 2, Marks: map[string]string{"<<": "y", "": "", "n": "null"}}}
	f.Named = map[string]part{"b": {}, "a": {}}
	f.Maybe = &part{URL: "u"}
	data, err := Encode(f)
	if err != nil {
		t.Fatal(err)
	}
	got, faults := decode(string(data))
	if faults != "" || !reflect.DeepEqual(got, f) {
		t.Errorf("got %+v %s\nwant %+v\nfrom\n%s", got, faults, f, data)
	}
	for _, want := range []string{"wait: 1h30m\n", "late: 1h\n", "room: 1MiB\n", "limit: auto\n", "share: 0.25\n", "  - url: http://h:1\n"} {
		if !strings.Contains(string(data), want) {
			t.Errorf("%q is missing in\n%s", want, data)
		}
	}
	if again, err := Encode(got); err != nil || string(again) != string(data) {
		t.Errorf("equal structs print differently (%v)\n%s\n%s", err, data, again)
	}
}

func TestNearest(t *testing.T) {
	known := []string{"connect", "stream_idle", "stream_total", "log"}
	for name, want := range map[string]string{
		"conect": "connect", "stream-idle": "stream_idle", "streamtotal": "stream_total", "STREAM_IDLE": "stream_idle",
		"lgo": "log", "colour": "", "": "", strings.Repeat("x", 1000): "",
	} {
		if got := Nearest(name, known); got != want {
			t.Errorf("Nearest(%.20q) = %q, want %q", name, got, want)
		}
	}
	for _, tt := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"abc", "abc", 0}, {"abc", "acb", 1}, {"kitten", "sitting", 3}, {"ab", "ba", 1}} {
		if got := distance(tt.a, tt.b); got != tt.want {
			t.Errorf("distance(%q, %q) = %d, want %d", tt.a, tt.b, got, tt.want)
		}
	}
}
