package proxy

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/starling-lb/starling/proxy/backend"
)

func fullEntry() *accessEntry {
	return &accessEntry{
		started: time.Date(2026, 3, 4, 5, 6, 7, 89_999_999, time.FixedZone("", 3600)), requestID: []byte("r-1"), client: "192.0.2.1",
		method: []byte("POST"), host: []byte("llm.example"), target: []byte("/v1/chat?a=<b>&c"), status: 200, pool: "llm", backend: "b1",
		epoch: 7, lookup: LookupHit, sessionStale: true, attempts: 2, queued: 1500 * time.Microsecond, connected: 999 * time.Nanosecond, firstByte: 25 * time.Millisecond,
		in: 10, out: 1 << 40, events: 3, took: 61*time.Second + 5*time.Microsecond, reason: backend.Done,
		trace: [16]byte{0x4b, 0xf9, 15: 0x36}, stale: true,
	}
}

// The names and their order are a promise to whoever reads the log.
func TestAccessLine(t *testing.T) {
	tests := []struct {
		name  string
		entry *accessEntry
		want  string
	}{
		{"all", fullEntry(), `{"ts":"2026-03-04T04:06:07.089Z","request_id":"r-1","client":"192.0.2.1","method":"POST","host":"llm.example",` +
			`"target":"/v1/chat?a=<b>&c","status":200,"code":"","pool":"llm","backend":"b1","session_epoch":7,"lookup":"hit","session_stale":true,"attempts":2,"queue_ms":1.500,"connect_ms":0.000,` +
			`"ttfb_ms":25.000,"bytes_in":10,"bytes_out":1099511627776,"events":3,"duration_ms":61000.005,"reason":"done",` +
			`"trace_id":"4bf90000000000000000000000000036","stale":true}` + "\n"},
		{"nothing known", &accessEntry{queued: -time.Second}, `{"ts":"0001-01-01T00:00:00.000Z","request_id":"","client":"","method":"","host":"",` +
			`"target":"","status":0,"code":"","pool":"","backend":"","session_epoch":0,"lookup":"","session_stale":false,"attempts":0,"queue_ms":0.000,"connect_ms":0.000,` +
			`"ttfb_ms":null,"bytes_in":0,"bytes_out":0,"events":0,"duration_ms":0.000,"reason":"","trace_id":"","stale":false}` + "\n"},
	}
	for _, tt := range tests {
		if got := string(appendAccessLine(nil, tt.entry)); got != tt.want {
			t.Errorf("%s:\n got %s\nwant %s", tt.name, got, tt.want)
		}
	}
}

func TestAccessText(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"plain", "/a b", `"/a b"`},
		{"quotes", `/"\"`, `"/\"\\\""`},
		{"control", "\x00\n\x1b\x7f", `"\u0000\u000a\u001b\u007f"`},
		{"high control", "\u0085\u009f\u00a0", "\"\\u0085\\u009f\u00a0\""},
		{"text", "é€😀\uFFFD", "\"é€😀\uFFFD\""},
		{"not UTF-8", "a\xffb\xe2\x82", `"a\ufffdb\ufffd\ufffd"`},
		{"as long as it may be", strings.Repeat("a", 16), `"aaaaaaaaaaaaaaaa"`},
		{"longer", strings.Repeat("a", 17), `"aaaaaaaaaaaaaaaa"`},
		{"cut in a character", strings.Repeat("a", 13) + "😀", `"aaaaaaaaaaaaa"`},
		{"cut behind a character", strings.Repeat("a", 12) + "😀b", `"aaaaaaaaaaaa😀"`},
		{"cut in a mess", strings.Repeat("\x80", 17), `"` + strings.Repeat(`\ufffd`, 16) + `"`},
	}
	for _, tt := range tests {
		if got := string(appendText(nil, "k", tt.text, 16)); got != `,"k":`+tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
		if got := string(appendText(nil, "k", []byte(tt.text), 16)); got != `,"k":`+tt.want {
			t.Errorf("%s, as bytes: %s, want %s", tt.name, got, tt.want)
		}
	}
}

func TestAccessLineIsBounded(t *testing.T) {
	long := strings.Repeat("\x00", 1<<16)
	e := fullEntry()
	e.requestID, e.method, e.host, e.target = []byte(long), []byte(long), []byte(long), []byte(long)
	e.client, e.pool, e.backend, e.reason, e.lookup = long, long, long, backend.Reason(long), Lookup(long)
	e.epoch, e.in, e.out, e.events, e.took = 1<<32-1, -1<<63, -1<<63, -1<<63, 1<<63-1
	line := appendAccessLine(nil, e)
	if len(line) > maxAccessLine || len(line) < maxAccessLine-1<<10 {
		t.Errorf("%d bytes; maxAccessLine is %d", len(line), maxAccessLine)
	}
	if !json.Valid(line) {
		t.Errorf("no JSON: %s", line)
	}
}

func FuzzAccessLine(f *testing.F) {
	f.Add([]byte("/v1/chat?x=\"\\\x00"), []byte("llm.example"), int64(1500))
	f.Add([]byte("\xff\xfe/\xe2\x82"), []byte("é\u2028"), int64(-1))
	f.Fuzz(func(t *testing.T, target, host []byte, n int64) {
		e := accessEntry{target: target, host: host, method: host, requestID: target, client: string(host), pool: string(target), out: n, took: time.Duration(n)}
		line := appendAccessLine([]byte("x"), &e)[1:]
		var back struct {
			Host, Target string
			BytesOut     int64   `json:"bytes_out"`
			Took         float64 `json:"duration_ms"`
		}
		if err := json.Unmarshal(line, &back); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if bytes.IndexByte(line, '\n') != len(line)-1 || !utf8.Valid(line) || len(line) > maxAccessLine {
			t.Fatalf("not one clean line: %q", line)
		}
		if back.BytesOut != n || back.Took != float64(max(n, 0)/1000)/1000 {
			t.Fatalf("%d and %v read back from %d", back.BytesOut, back.Took, n)
		}
		for _, pair := range [][2]string{{string(target), back.Target}, {string(host), back.Host}} {
			whole := string([]rune(pair[0])) // broken bytes replaced one by one
			if len(pair[0]) <= maxLogged && pair[1] != whole || !strings.HasPrefix(whole, pair[1]) {
				t.Fatalf("%q was logged as %q", pair[0], pair[1])
			}
		}
	})
}

func BenchmarkAccessLine(b *testing.B) {
	e, line := fullEntry(), make([]byte, 0, maxAccessLine)
	for b.Loop() {
		appendAccessLine(line, e)
	}
}
