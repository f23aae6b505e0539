package wire

import (
	"strings"
	"testing"
	"time"
)

// ours are the lines that every forwarded request ends with, for this client
// and host.
func ours(host string) string {
	return "Via: 1.1 starling\r\nX-Forwarded-For: 10.1.2.3\r\nX-Forwarded-Proto: http\r\nX-Forwarded-Host: " + host + "\r\n\r\n"
}

type forwardCase struct {
	name, head string
	with       Forwarding // Client is filled in
	want       string
}

func forwards() []forwardCase {
	h := ours("h")
	trusted := Forwarding{Trusted: true}
	named := Forwarding{IDName: "X-Request-ID", RequestID: []byte("our-id")}
	return []forwardCase{
		{"order, case, duplicates and inner blanks kept",
			head("GET /a?b HTTP/1.1", "x-B:2", "Host: h", "X-A:  1 ", "Cookie: a=1; b; c=\"x, y\"; =g", "x-b: 3", "X-A: 4", "X-E:"), Forwarding{},
			"GET /a?b HTTP/1.1\r\nHost: h\r\nx-B:2\r\nX-A:  1 \r\nCookie: a=1; b; c=\"x, y\"; =g\r\nx-b: 3\r\nX-A: 4\r\nX-E:\r\n" + h},
		{"hop by hop",
			head("GET / HTTP/1.1", "Host: h", "Connection: keep-alive", "Keep-Alive: timeout=5", "Proxy-Connection: keep-alive", "TE: gzip", "Upgrade: x", "X: y"), Forwarding{},
			"GET / HTTP/1.1\r\nHost: h\r\nX: y\r\n" + h},
		{"nominated",
			head("GET / HTTP/1.1", "Host: h", "Connection: keep-alive, X-Hop , x-other,,", "X-Hop: secret", "X-OTHER: secret", "X-Keep: yes", "Connection: x-third", "X-Third: secret"), Forwarding{},
			"GET / HTTP/1.1\r\nHost: h\r\nX-Keep: yes\r\n" + h},
		{"framing and host cannot be nominated",
			head("POST / HTTP/1.1", "Connection: close, content-length, host", "Host: h", "Content-Length: 5"), Forwarding{},
			"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n" + h},
		{"nor can chunked",
			head("POST / HTTP/1.1", "Connection: Transfer-Encoding", "Host: h", "Transfer-Encoding:  Chunked"), Forwarding{},
			"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding:  Chunked\r\n" + h},
		{"ours cannot be nominated away",
			head("GET / HTTP/1.1", "Host: h", "Connection: close, x-forwarded-for, X-Forwarded-Proto, x-forwarded-host, via, x-request-id", "Via: 1.1 a", "X-Forwarded-For: 1.1.1.1", "X-Request-ID: theirs"), named,
			"GET / HTTP/1.1\r\nHost: h\r\n" + strings.TrimSuffix(h, "\r\n") + "X-Request-ID: our-id\r\n\r\n"},
		{"nor through a trusted proxy",
			head("GET / HTTP/1.1", "Host: h", "Connection: x-forwarded-for, x-forwarded-proto, x-forwarded-host", "X-Forwarded-For: 1.1.1.1", "X-Forwarded-Proto: https", "X-Forwarded-Host: e"), trusted,
			"GET / HTTP/1.1\r\nHost: h\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: e\r\nVia: 1.1 starling\r\nX-Forwarded-For: 1.1.1.1, 10.1.2.3\r\n\r\n"},

		{"nobody's X-Forwarded-* are believed",
			head("GET / HTTP/1.1", "Host: h", "X-Forwarded-For: 6.6.6.6", "x-forwarded-proto: https", "X-FORWARDED-HOST: evil", "X-Forwarded-Port: 1", "Forwarded: for=6.6.6.6", "x-real-ip: 6.6.6.6"), Forwarding{},
			"GET / HTTP/1.1\r\nHost: h\r\n" + h},
		{"nor by names that gateways take for these",
			head("GET / HTTP/1.1", "Host: h", "X_Forwarded_For: 6.6.6.6", "x-forwarded_proto: https", "X_FORWARDED-HOST: evil", "X_Forwarded_Port: 1", "x_real-ip: 6.6.6.6", "X_Request_ID: theirs", "x_own: y", "A_B-C_D-E_F-G_H: z"), named,
			"GET / HTTP/1.1\r\nHost: h\r\nx_own: y\r\nA_B-C_D-E_F-G_H: z\r\n" + strings.TrimSuffix(h, "\r\n") + "X-Request-ID: our-id\r\n\r\n"},
		{"nor what else is taken for a word on the client",
			head("GET / HTTP/1.1", "Host: h", "Connection: x-forwarded-prefix", "X-Forwarded-Prefix: /evil", "X-Forwarded-Ssl: on", "x-forwarded-scheme: https", "X-Forwarded-Protocol: https", "X-Forwarded-By: x",
				"Front-End-Https: on", "Client-IP: 6.6.6.6", "x-client-ip: 6.6.6.6", "True-Client-IP: 6.6.6.6", "X-Cluster-Client-IP: 6.6.6.6", "X-Forwarded: y"), Forwarding{},
			"GET / HTTP/1.1\r\nHost: h\r\nX-Forwarded: y\r\n" + h},
		{"nor that by names that gateways take for these",
			head("GET / HTTP/1.1", "Host: h", "X_Forwarded_Prefix: /evil", "X-Forwarded_Ssl: on", "Front_End_Https: on", "Client_IP: 6.6.6.6", "X-Client_IP: 6.6.6.6", "True_Client_IP: 6.6.6.6", "X_Cluster_Client_IP: 6.6.6.6"), trusted,
			"GET / HTTP/1.1\r\nHost: h\r\n" + h},
		{"but it is a trusted proxy's to say, whatever its client names in Connection",
			head("GET / HTTP/1.1", "Host: h", "Connection: x-forwarded-prefix, client-ip", "X-Forwarded-Prefix: /app", "Client-IP: 1.1.1.1"), trusted,
			"GET / HTTP/1.1\r\nHost: h\r\nX-Forwarded-Prefix: /app\r\nClient-IP: 1.1.1.1\r\n" + h},
		{"not even a trusted proxy's",
			head("GET / HTTP/1.1", "Host: h", "X_Forwarded_For: 6.6.6.6", "X_Real_IP: 6.6.6.6"), trusted,
			"GET / HTTP/1.1\r\nHost: h\r\n" + h},
		{"a trusted proxy's are",
			head("GET / HTTP/1.1", "Host: h", "X-Forwarded-For: 1.1.1.1", "X-Forwarded-Proto: https", "X-Forwarded-For: 2.2.2.2, 3.3.3.3", "X-Forwarded-Host: e"), trusted,
			"GET / HTTP/1.1\r\nHost: h\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: e\r\nVia: 1.1 starling\r\nX-Forwarded-For: 1.1.1.1, 2.2.2.2, 3.3.3.3, 10.1.2.3\r\n\r\n"},
		{"so is what else it says of the client",
			head("GET / HTTP/1.1", "Host: h", "Connection: x-real-ip, forwarded", "X-Forwarded-Port: 1", "Forwarded: for=1.1.1.1", "x-real-ip: 1.1.1.1"), trusted,
			"GET / HTTP/1.1\r\nHost: h\r\nX-Forwarded-Port: 1\r\nForwarded: for=1.1.1.1\r\nx-real-ip: 1.1.1.1\r\n" + h},
		{"a trusted proxy that says nothing", head("GET / HTTP/1.1", "Host: h"), trusted, "GET / HTTP/1.1\r\nHost: h\r\n" + h},
		{"by TLS", head("GET / HTTP/1.1", "Host: h"), Forwarding{TLS: true}, "GET / HTTP/1.1\r\nHost: h\r\n" + strings.Replace(h, "http\r", "https\r", 1)},

		{"request id", head("GET / HTTP/1.1", "Host: h", "x-request-id: theirs", "X-Request-ID2: y"), named,
			"GET / HTTP/1.1\r\nHost: h\r\nX-Request-ID2: y\r\n" + strings.TrimSuffix(h, "\r\n") + "X-Request-ID: our-id\r\n\r\n"},
		{"no request id wanted", head("GET / HTTP/1.1", "Host: h", "x-request-id: theirs"), Forwarding{}, "GET / HTTP/1.1\r\nHost: h\r\nx-request-id: theirs\r\n" + h},

		{"backend's host", head("GET / HTTP/1.1", "Host: h"), Forwarding{Host: "b:1"}, "GET / HTTP/1.1\r\nHost: b:1\r\n" + h},
		{"host as written", head("GET / HTTP/1.1", "hOST:h  "), Forwarding{}, "GET / HTTP/1.1\r\nhOST:h  \r\n" + h},
		{"absolute form, same host", head("GET http://h/x HTTP/1.1", "HOST:h"), Forwarding{}, "GET /x HTTP/1.1\r\nHOST:h\r\n" + h},
		{"absolute form, other host", head("GET http://real:8/x HTTP/1.1", "Host: h"), Forwarding{}, "GET /x HTTP/1.1\r\nHost: real:8\r\n" + ours("real:8")},
		{"absolute form, no path", head("GET http://real?q HTTP/1.1", "Host: h"), Forwarding{}, "GET /?q HTTP/1.1\r\nHost: real\r\n" + ours("real")},
		{"OPTIONS *", head("OPTIONS * HTTP/1.1", "Host: h"), Forwarding{}, "OPTIONS * HTTP/1.1\r\nHost: h\r\n" + h},
		{"HTTP/1.0", head("GET / HTTP/1.0", "Host: h", "X: y"), Forwarding{}, "GET / HTTP/1.1\r\nHost: h\r\nX: y\r\n" + strings.Replace(h, "1.1", "1.0", 1)},
		{"HTTP/1.0 without host", head("GET / HTTP/1.0"), Forwarding{}, "GET / HTTP/1.1\r\nHost: \r\n" + strings.Replace(ours(""), "1.1", "1.0", 1)},

		{"upgrade", head("GET / HTTP/1.1", "Host: h", "connection: keep-alive, Upgrade", "upgrade: WebSocket", "Sec-WebSocket-Key: k"), Forwarding{},
			"GET / HTTP/1.1\r\nHost: h\r\nSec-WebSocket-Key: k\r\nConnection: upgrade\r\nUpgrade: WebSocket\r\n" + h},
		{"h2c", head("GET / HTTP/1.1", "Host: h", "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMA"), Forwarding{}, "GET / HTTP/1.1\r\nHost: h\r\n" + h},
		{"trailers", head("GET / HTTP/1.1", "Host: h", "Connection: TE", "TE: trailers, gzip"), Forwarding{}, "GET / HTTP/1.1\r\nHost: h\r\nConnection: TE\r\nTE: trailers\r\n" + h},
		{"expect", head("POST / HTTP/1.1", "Host: h", "Expect: 100-continue", "Content-Length: 1"), Forwarding{}, "POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 1\r\n" + h},
		{"expect nothing", head("GET / HTTP/1.1", "Host: h", "Expect: 100-continue"), Forwarding{}, "GET / HTTP/1.1\r\nHost: h\r\n" + h},
		{"expect of HTTP/1.0", head("POST / HTTP/1.0", "Host: h", "Expect: 100-continue", "Content-Length: 1"), Forwarding{},
			"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n" + strings.Replace(h, "1.1", "1.0", 1)},
		{"nothing is invented", head("POST / HTTP/1.1", "Host: h", "Content-Length: 1"), Forwarding{}, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n" + h},
	}
}

func TestForward(t *testing.T) {
	var q Request
	for _, c := range forwards() {
		t.Run(c.name, func(t *testing.T) {
			if err := q.parse([]byte(c.head)); err != nil {
				t.Fatal(err)
			}
			c.with.Client = "10.1.2.3"
			if got := string(q.AppendForward([]byte("before"), c.with)); got != "before"+c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

type answerCase struct {
	name, head string
	toHead     bool
	with       Answering
	want       string
}

func answersOut() []answerCase {
	const dated = "Date: Mon, 01 Jan 2024 00:00:00 GMT"
	return []answerCase{
		{"order, case, duplicates and reason kept", head("HTTP/1.1 200 all  right ", "set-cookie: a=1", dated, "Content-Length:2", "Set-Cookie: a=2", "X-E:"), false, Answering{},
			head("HTTP/1.1 200 all  right ", "set-cookie: a=1", dated, "Content-Length:2", "Set-Cookie: a=2", "X-E:")},
		{"hop by hop", head("HTTP/1.1 200 OK", dated, "Connection: keep-alive", "Keep-Alive: timeout=5", "Proxy-Connection: x", "TE: x", "Upgrade: h2c", "Content-Length: 2"), false, Answering{},
			head("HTTP/1.1 200 OK", dated, "Content-Length: 2")},
		{"nominated", head("HTTP/1.1 200 OK", dated, "Connection: keep-alive, x-hop, content-length", "X-Hop: secret", "X-Keep: yes", "Content-Length: 2"), false, Answering{},
			head("HTTP/1.1 200 OK", dated, "X-Keep: yes", "Content-Length: 2")},
		{"chunked and trailers", head("HTTP/1.1 200 OK", dated, "Trailer: X-Sum", "Transfer-Encoding: chunked"), false, Answering{},
			head("HTTP/1.1 200 OK", dated, "Trailer: X-Sum", "Transfer-Encoding: chunked")},
		{"both framings", head("HTTP/1.1 200 OK", dated, "Content-Length: 5", "Transfer-Encoding: chunked"), false, Answering{},
			head("HTTP/1.1 200 OK", dated, "Transfer-Encoding: chunked")},
		{"HTTP/1.0 backend", head("HTTP/1.0 200 OK", dated, "Content-Length: 2"), false, Answering{}, head("HTTP/1.1 200 OK", dated, "Content-Length: 2")},
		{"empty reason", head("HTTP/1.1 200 ", dated, "Content-Length: 2"), false, Answering{}, head("HTTP/1.1 200 ", dated, "Content-Length: 2")},
		{"no blank before the empty reason", head("HTTP/1.1 200", dated, "Content-Length: 2"), false, Answering{}, head("HTTP/1.1 200 ", dated, "Content-Length: 2")},

		{"204", head("HTTP/1.1 204 No Content", dated, "Content-Length: 0", "Transfer-Encoding: chunked", "X: y"), false, Answering{}, head("HTTP/1.1 204 No Content", dated, "X: y")},
		{"304", head("HTTP/1.1 304 Not Modified", dated, "Content-Length: 500", "ETag: a"), false, Answering{}, head("HTTP/1.1 304 Not Modified", dated, "Content-Length: 500", "ETag: a")},
		{"304 chunked", head("HTTP/1.1 304 Not Modified", dated, "Transfer-Encoding: chunked"), false, Answering{}, head("HTTP/1.1 304 Not Modified", dated)},
		{"HEAD", head("HTTP/1.1 200 OK", dated, "Content-Length: 12345"), true, Answering{}, head("HTTP/1.1 200 OK", dated, "Content-Length: 12345")},
		{"103", head("HTTP/1.1 103 Early Hints", "Link: </a>", "Content-Length: 5", "Connection: close"), false, Answering{Close: true, Backend: "b1"}, head("HTTP/1.1 103 Early Hints", "Link: </a>")},
		{"100", head("HTTP/1.1 100 Continue"), false, Answering{}, head("HTTP/1.1 100 Continue")},
		{"101", head("HTTP/1.1 101 Switching Protocols", dated, "Connection: Upgrade", "upgrade: websocket", "Keep-Alive: x", "Sec-WebSocket-Accept: k"), false, Answering{},
			head("HTTP/1.1 101 Switching Protocols", dated, "Connection: Upgrade", "upgrade: websocket", "Sec-WebSocket-Accept: k")},
		{"426 keeps no Upgrade", head("HTTP/1.1 426 Upgrade Required", dated, "Connection: Upgrade", "Upgrade: websocket", "Content-Length: 2"), false, Answering{},
			head("HTTP/1.1 426 Upgrade Required", dated, "Content-Length: 2")},

		{"the connection ends", head("HTTP/1.1 200 OK", dated), false, Answering{Close: true}, head("HTTP/1.1 200 OK", dated, "Connection: close")},
		{"to HTTP/1.0, which stays", head("HTTP/1.1 200 OK", dated, "Content-Length: 2"), false, Answering{HTTP10: true}, head("HTTP/1.1 200 OK", dated, "Content-Length: 2", "Connection: keep-alive")},
		{"to HTTP/1.0, which ends", head("HTTP/1.1 200 OK", dated, "Transfer-Encoding: chunked"), false, Answering{HTTP10: true, Close: true}, head("HTTP/1.1 200 OK", dated)},
		{"backend named", head("HTTP/1.1 200 OK", dated, "Content-Length: 2"), false, Answering{Backend: "b1"}, head("HTTP/1.1 200 OK", dated, "Content-Length: 2", "X-Starling-Backend: b1")},
	}
}

func TestAnswer(t *testing.T) {
	var p Response
	for _, c := range answersOut() {
		t.Run(c.name, func(t *testing.T) {
			if err := p.parse([]byte(c.head), c.toHead); err != nil {
				t.Fatal(err)
			}
			if got := string(p.AppendAnswer([]byte("before"), c.with)); got != "before"+c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

// A Date is added to a final answer that has none, or whose own ends at this
// hop; never a second one.
func TestAnswerDate(t *testing.T) {
	var p Response
	for _, c := range []struct {
		name, head string
		added      bool
	}{
		{"none", head("HTTP/1.1 200 OK", "Content-Length: 0"), true},
		{"101", head("HTTP/1.1 101 x", "Connection: upgrade", "Upgrade: x"), true},
		{"nominated", head("HTTP/1.1 200 OK", "Connection: date", "Date: x", "Content-Length: 0"), true},
		{"any case", head("HTTP/1.1 200 OK", "dATE: x", "Content-Length: 0"), false},
		{"interim", head("HTTP/1.1 103 x"), false},
	} {
		if err := p.parse([]byte(c.head), false); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		out := string(p.AppendAnswer(nil, Answering{}))
		_, rest, added := strings.Cut(out, "\r\nDate: ")
		if added != c.added || strings.Contains(rest, "\r\nDate: ") {
			t.Errorf("%s: a Date was added: %v, to\n%s", c.name, added, out)
			continue
		}
		if !added {
			continue
		}
		value, _, _ := strings.Cut(rest, "\r\n")
		at, err := time.Parse("Mon, 02 Jan 2006 15:04:05 GMT", value)
		if off := time.Since(at); err != nil || off < -2*time.Second || off > time.Minute {
			t.Errorf("%s: Date %q is %v old (%v)", c.name, value, off, err)
		}
	}
}
