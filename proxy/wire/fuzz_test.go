package wire

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"testing"
)

// FuzzRequestHead compares what is sent on with what another parser makes of
// it: net/http must read the same method, target, host and framing, and find
// nothing that ends at this hop.
func FuzzRequestHead(f *testing.F) {
	clients, _ := seeds(f)
	for _, c := range accepted() {
		clients = append(clients, c[1])
	}
	for _, c := range refused() {
		clients = append(clients, c.head)
	}
	for _, c := range forwards() {
		clients = append(clients, c.head)
	}
	for i, c := range clients {
		f.Add([]byte(c), i%2 == 0)
	}
	var q Request
	f.Fuzz(func(t *testing.T, in []byte, trusted bool) {
		n := headEnd(in, 0)
		if n == 0 || q.parse(in[:n]) != nil {
			return
		}
		w := Forwarding{Client: "10.1.2.3", Trusted: trusted, IDName: "X-Request-ID", RequestID: []byte("our-id")}
		out := q.AppendForward(nil, w)
		if headEnd(out, 0) != len(out) {
			t.Fatalf("the head ends at %d of %d:\n%q", headEnd(out, 0), len(out), out)
		}
		theirs, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(readable(out, q.Target))))
		if err != nil {
			if strings.Contains(err.Error(), "bad trailer key") {
				return // the announcement of a trailer that may not be one
			}
			t.Fatalf("net/http: %v, of\n%q", err, out)
		}
		sameRequest(t, &q, theirs)
		sameForwarded(t, theirs, trusted)
	})
}

// readable is the head with a target that net/http reads: it decodes paths, and
// refuses those that it cannot.
func readable(out, target []byte) []byte {
	if _, err := url.ParseRequestURI(string(target)); err == nil {
		return out
	}
	return bytes.Replace(out, append([]byte(" "), target...), []byte(" /unreadable"), 1)
}

func sameRequest(t *testing.T, q *Request, theirs *http.Request) {
	t.Helper()
	if theirs.Method != string(q.Method) || theirs.Proto != "HTTP/1.1" {
		t.Errorf("net/http reads method %q, version %s; we read %q", theirs.Method, theirs.Proto, q.Method)
	}
	if got := theirs.RequestURI; got != string(q.Target) && got != "/unreadable" {
		t.Errorf("net/http reads target %q, we %q", got, q.Target)
	}
	if theirs.Host != string(q.Host) {
		t.Errorf("net/http reads host %q, we %q", theirs.Host, q.Host)
	}
	if theirs.ContentLength != q.Length || (len(theirs.TransferEncoding) == 1) != (q.Length == Chunked) {
		t.Errorf("net/http reads length %d and coding %q, we %d", theirs.ContentLength, theirs.TransferEncoding, q.Length)
	}
}

func sameForwarded(t *testing.T, theirs *http.Request, trusted bool) {
	t.Helper()
	for _, name := range []string{"Keep-Alive", "Proxy-Connection", "Http2-Settings"} {
		if _, there := theirs.Header[name]; there && (name != "Http2-Settings" || theirs.Header.Get("Upgrade") == "h2c") {
			t.Errorf("%s was sent on", name)
		}
	}
	upgrades, trailers := theirs.Header["Upgrade"], theirs.Header["Te"]
	switch connection := strings.Join(theirs.Header["Connection"], "|"); {
	case connection == "upgrade" && len(upgrades) == 1 && trailers == nil:
	case connection == "TE" && upgrades == nil && len(trailers) == 1 && trailers[0] == "trailers":
	case connection == "" && upgrades == nil && trailers == nil:
	default:
		t.Errorf("sent on: Connection %q, Upgrade %q, TE %q", connection, upgrades, trailers)
	}
	if id := theirs.Header["X-Request-Id"]; len(id) != 1 || id[0] != "our-id" {
		t.Errorf("request id %q", id)
	}
	via, by := theirs.Header["Via"], theirs.Header["X-Forwarded-For"]
	if len(via) == 0 || !strings.HasSuffix(via[len(via)-1], " starling") {
		t.Errorf("Via %q", via)
	}
	if len(by) != 1 || !strings.HasSuffix(by[0], "10.1.2.3") || !trusted && by[0] != "10.1.2.3" {
		t.Errorf("X-Forwarded-For %q", by)
	}
	for _, name := range []string{"X-Forwarded-Proto", "X-Forwarded-Host"} {
		if lines := theirs.Header[name]; len(lines) == 0 || !trusted && len(lines) != 1 {
			t.Errorf("%s %q", name, lines)
		}
	}
}

// FuzzResponseHead does the same for answers.
func FuzzResponseHead(f *testing.F) {
	_, backends := seeds(f)
	for _, c := range answers() {
		backends = append(backends, c[1])
	}
	for _, c := range badAnswers() {
		backends = append(backends, c.head)
	}
	for _, c := range answersOut() {
		backends = append(backends, c.head)
	}
	for i, c := range backends {
		f.Add([]byte(c), i%5 == 0, i%3 == 0)
	}
	var p Response
	f.Fuzz(func(t *testing.T, in []byte, toHead, close bool) {
		n := headEnd(in, 0)
		if n == 0 || p.parse(in[:n], toHead) != nil {
			return
		}
		out := p.AppendAnswer(nil, Answering{Close: close})
		if headEnd(out, 0) != len(out) {
			t.Fatalf("the head ends at %d of %d:\n%q", headEnd(out, 0), len(out), out)
		}
		asked := &http.Request{Method: "GET"}
		if toHead {
			asked.Method = "HEAD"
		}
		theirs, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(out)), asked)
		if err != nil {
			if strings.Contains(err.Error(), "bad trailer key") {
				return
			}
			t.Fatalf("net/http: %v, of\n%q", err, out)
		}
		sameResponse(t, &p, theirs, toHead)
		if n := bytes.Count(bytes.ToLower(out), []byte("\r\nconnection:")); p.Status != 101 && n != map[bool]int{true: 1}[close && p.Status >= 200] {
			t.Errorf("%d Connection lines, close %v:\n%q", n, close, out)
		}
	})
}

func sameResponse(t *testing.T, p *Response, theirs *http.Response, toHead bool) {
	t.Helper()
	if theirs.StatusCode != p.Status || theirs.Proto != "HTTP/1.1" {
		t.Errorf("net/http reads status %d, version %s; we %d", theirs.StatusCode, theirs.Proto, p.Status)
	}
	want := p.Length
	if want == UntilClose {
		want = -1
	}
	bodiless := toHead || p.Status < 200 || p.Status == 204 || p.Status == 304
	if (theirs.ContentLength != want || (len(theirs.TransferEncoding) == 1) != (p.Length == Chunked)) && !bodiless {
		t.Errorf("net/http reads length %d and coding %q, we %d", theirs.ContentLength, theirs.TransferEncoding, p.Length)
	}
	if p.Status == 204 || p.Status < 200 {
		if _, there := theirs.Header["Content-Length"]; there || theirs.TransferEncoding != nil {
			t.Errorf("a %d has framing", p.Status)
		}
	}
	for _, name := range []string{"Keep-Alive", "Proxy-Connection", "Te"} {
		if _, there := theirs.Header[name]; there {
			t.Errorf("%s was passed on", name)
		}
	}
	if dates := theirs.Header["Date"]; len(dates) == 0 && !p.Interim() {
		t.Error("no Date")
	}
}

// FuzzChunks: what is taken here another decoder takes too, and reads the same
// data from it; and how the bytes come in pieces changes nothing.
func FuzzChunks(f *testing.F) {
	clients, backends := seeds(f)
	for _, c := range append(clients, backends...) {
		if _, body, ok := strings.Cut(c, "\r\n\r\n"); ok && strings.Contains(c, "chunked") {
			f.Add([]byte(body), 3)
		}
	}
	for i, b := range bodies() {
		f.Add([]byte(b[0]), i+1)
	}
	for i, b := range brokenBodies() {
		f.Add([]byte(b), i+1)
	}
	f.Fuzz(func(t *testing.T, in []byte, size int) {
		if size < 1 || len(in) > 4000 { // longer ones hit limits of net/http that are not ours
			return
		}
		data, err := unchunk(string(in), len(in))
		pieces, err2 := unchunk(string(in), size)
		if data != pieces || (err == nil) != (err2 == nil) {
			t.Fatalf("whole: %q, %v; in pieces of %d: %q, %v", data, err, size, pieces, err2)
		}
		relayed(t, in, size, err == nil)
		if err != nil {
			return
		}
		theirs, err := io.ReadAll(httputil.NewChunkedReader(bytes.NewReader(in)))
		if err != nil || string(theirs) != data {
			t.Errorf("net/http reads %q, %v; we %q", theirs, err, data)
		}
	})
}

// relayed fails unless a relay of the body ends as the body does, and sends on
// what decodes to the same data.
func relayed(t *testing.T, in []byte, size int, whole bool) {
	t.Helper()
	var pieces []string
	for p := string(in); len(p) > 0; p = p[min(size, len(p)):] {
		pieces = append(pieces, p[:min(size, len(p))])
	}
	from, to := scripted(pieces...), scripted()
	r := relay(from, to, Chunked)
	err := r.Run(nil)
	want, _ := unchunk(string(in), len(in))
	got, end := unchunk(strings.Join(to.writes, ""), len(in)+1)
	switch {
	case whole && (err != nil || end != nil || got != want):
		t.Errorf("relay: %v; the receiver reads %s, %v; want %s", err, strconv.Quote(got), end, strconv.Quote(want))
	case !whole && (err == nil || end == nil):
		t.Errorf("relay of a body without end: %v; the receiver reads %q, %v", err, got, end)
	}
}
