package wire

import (
	"strings"
	"testing"
)

func TestHops(t *testing.T) {
	const field = "Max-Forwards: "
	tests := []struct {
		method, value string
		last          bool
		forwarded     string
	}{
		{"OPTIONS", "1", false, "0"},
		{"TRACE", "007", false, "6"},
		{"OPTIONS", "0", true, ""},
		{"TRACE", "000", true, ""},
		{"GET", "0", false, "0"},
		{"OPTIONS", "", false, ""},
		{"OPTIONS", "1, 2", false, "1, 2"},
		{"OPTIONS", strings.Repeat("9", 40), false, "999999999"},
	}
	for _, tt := range tests {
		var q Request
		if err := q.parse([]byte(tt.method + " / HTTP/1.1\r\nHost: h\r\n" + field + tt.value + "\r\n\r\n")); err != nil {
			t.Fatal(err)
		}
		if got := q.LastHop(); got != tt.last {
			t.Errorf("%s %q: last hop %v", tt.method, tt.value, got)
		}
		if head := string(q.AppendForward(nil, Forwarding{})); !tt.last && !strings.Contains(head, "\r\n"+field+tt.forwarded+"\r\n") {
			t.Errorf("%s %q: forwarded %q", tt.method, tt.value, head)
		}
	}
}

func TestTraceFields(t *testing.T) {
	const states = "Tracestate: a=1\r\ntraceSTATE: b=2\r\n"
	tests := []struct {
		lines      string
		forwarding Forwarding
		value      string
		want       string // behind the other fields of the client
	}{
		{"TraceParent:  x \r\n" + states, Forwarding{}, "x", "TraceParent:  x \r\n" + states},
		{"traceparent: x\r\n" + states, Forwarding{Trace: []byte("y")}, "x", states + "Traceparent: y\r\n"},
		{"traceparent: x\r\nTraceparent: z\r\n" + states, Forwarding{Trace: []byte("y"), NewTrace: true}, "", "Traceparent: y\r\n"},
		{states, Forwarding{Trace: []byte("y"), NewTrace: true}, "", "Traceparent: y\r\n"},
	}
	for _, tt := range tests {
		var q Request
		if err := q.parse([]byte("GET / HTTP/1.1\r\nHost: h\r\n" + tt.lines + "\r\n")); err != nil {
			t.Fatal(err)
		}
		if got, ok := q.Traceparent(); string(got) != tt.value || ok != (tt.value != "") {
			t.Errorf("%q: traceparent %q, %v", tt.lines, got, ok)
		}
		var got string
		for line := range strings.Lines(string(q.AppendForward(nil, tt.forwarding))) {
			if strings.HasPrefix(strings.ToLower(line), "trace") {
				got += line
			}
		}
		if got != tt.want {
			t.Errorf("%q: forwarded %q, want %q", tt.lines, got, tt.want)
		}
	}
}

// What is asked of a request that could not be read is not answered by the one
// before it.
func TestClear(t *testing.T) {
	const first = "HEAD /a HTTP/1.0\r\nHost: h\r\nTraceparent: x\r\nContent-Length: 3\r\n\r\n"
	for _, bad := range []string{"GET", "GET / HTTP/9.9\r\nHost: h\r\n\r\n", "GET / HTTP/1.1\r\nHost : h\r\n\r\n", "G\x01T / HTTP/1.1\r\nHost: h\r\n\r\n"} {
		var q Request
		if err := q.parse([]byte(first)); err != nil {
			t.Fatal(err)
		}
		if q.parse([]byte(bad)) == nil {
			t.Fatalf("%q was taken", bad)
		}
		if _, ok := q.Traceparent(); q.IsHead() || q.HTTP10 || q.Length != 0 || string(q.Target) == "/a" || ok {
			t.Errorf("%q: something of the request before is left", bad)
		}
	}
}
