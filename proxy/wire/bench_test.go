package wire

import (
	"testing"
)

func commonRequest() []byte {
	return []byte(head("POST /v1/chat/completions?x=1 HTTP/1.1", "Host: lb.example:8080", "User-Agent: openai-python/1.40", "Accept: application/json",
		"Accept-Encoding: gzip, deflate", "Connection: keep-alive", "Content-Type: application/json", "Authorization: Bearer sk-0123456789abcdef",
		"X-Session-ID: 0123456789", "X-Forwarded-For: 1.1.1.1", "Content-Length: 8192"))
}

func commonResponse() []byte {
	return []byte(head("HTTP/1.1 200 OK", "Date: Mon, 01 Jan 2024 00:00:00 GMT", "Server: uvicorn", "Content-Type: text/event-stream; charset=utf-8",
		"Cache-Control: no-cache", "Connection: keep-alive", "Set-Cookie: a=1; Path=/", "Transfer-Encoding: chunked"))
}

func commonForwarding() Forwarding {
	return Forwarding{Client: "10.1.2.3", IDName: "X-Request-ID", RequestID: []byte("0123456789abcdef")}
}

// events are many chunks of the size that engines send.
func events() []byte {
	var b []byte
	for range 100 {
		b = append(b, "b7\r\n"...)
		b = append(b, make([]byte, 0xb7)...)
		b = append(b, "\r\n"...)
	}
	return append(b, "0\r\n\r\n"...)
}

func BenchmarkRequestHead(b *testing.B) {
	var q Request
	in := commonRequest()
	b.ReportAllocs()
	b.SetBytes(int64(len(in)))
	for b.Loop() {
		if err := q.parse(in); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkResponseHead(b *testing.B) {
	var p Response
	in := commonResponse()
	b.ReportAllocs()
	b.SetBytes(int64(len(in)))
	for b.Loop() {
		if err := p.parse(in, false); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkForward(b *testing.B) {
	var q Request
	in, w := commonRequest(), commonForwarding()
	if err := q.parse(in); err != nil {
		b.Fatal(err)
	}
	var out []byte
	b.ReportAllocs()
	for b.Loop() {
		out = q.AppendForward(out[:0], w)
	}
}

func BenchmarkChunks(b *testing.B) {
	body := events()
	b.ReportAllocs()
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		var c Chunks
		if _, done, err := c.Scan(body); err != nil || !done {
			b.Fatal(err)
		}
	}
}
