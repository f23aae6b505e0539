package wirecase

import (
	"bytes"
	"net"
	"os"
	"testing"
	"time"
)

// lie is what a byte-passing relay does wrong. Each is a bug that proxies had.
type lie struct {
	request, response func([]byte) []byte // change a piece
	delay             time.Duration       // before each piece, both ways
}

// TestRelayLies shows that the cases catch what they are there for: a relay
// that passes bytes alone, and one that lies in one way.
func TestRelayLies(t *testing.T) {
	replace := func(old, new string) func([]byte) []byte {
		return func(p []byte) []byte { return bytes.ReplaceAll(p, []byte(old), []byte(new)) }
	}
	for _, tt := range []struct {
		name, id string
		lie      lie
		failure  string // "" for none
	}{
		{"honest", "hdr-req-order", lie{}, ""},
		{"honest", "sse-bytes", lie{}, ""},
		{"honest", "ws-first-frame", lie{}, ""},
		{"honest", "rsp-cl-short", lie{}, ""},
		{"honest", "up-first-piece", lie{}, ""},
		{"honest", "rsp-early-413", lie{}, ""},
		{"passes both lengths", "req-cl-te", lie{}, "clean: Content-Length beside"},
		{"passes a fold", "req-obs-fold", lie{}, "clean: line folding"},
		{"passes a bad name", "req-space-colon", lie{}, "complete_requests: got 1"},
		{"passes hop by hop", "hdr-req-nominated", lie{}, "header_absent: X-Hop"},
		{"passes chunks to 1.0", "rsp-chunked-http10-client", lie{}, "header_absent: Transfer-Encoding"},
		{"goes on after close", "ka-after-close", lie{}, "requests: got 2"},
		{"drops a length", "req-cl-nominated", lie{request: replace("Content-Length: 51\r\n", "")}, "no_target_contains"},
		{"gives HEAD a body", "rsp-head-cl", lie{response: replace("12345\r\n\r\n", "12345\r\n\r\nbody")}, "malformed response"},
		{"joins cookies", "hdr-set-cookie", lie{response: replace("Path=/\r\nX-Mid: x\r\nSet-Cookie: ", "Path=/, ")}, "header_lines: Set-Cookie"},
		{"merges slashes", "tgt-double-slash", lie{request: replace("//a", "/a")}, "target: got"},
		{"drops a lone question mark", "tgt-empty-query", lie{request: replace("? HTTP", " HTTP")}, "target: got"},
		{"unescapes", "tgt-escapes", lie{request: replace("%41", "A")}, "target: got"},
		{"mends a broken stream", "rsp-chunk-no-last", lie{response: replace("data: a\r\n", "data: a\r\n0\r\n\r\n")}, "complete: want false"},
		{"swallows a 103", "rsp-103", lie{response: replace("HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n", "")}, "interim: got []"},
		{"gives 204 a length", "rsp-204", lie{response: replace("X-A: b\r\n", "Content-Length: 0\r\n")}, "in a 204"},
		{"changes line ends", "sse-bytes", lie{response: replace("data: x\r", "data: x\n")}, "body: got"},
		{"drops Retry-After", "rsp-429", lie{response: replace("Retry-After: 7\r\n", "")}, "header_lines: Retry-After"},
		{"buffers a response", "sse-first-event", lie{delay: 800 * time.Millisecond}, "body_starts_within_ms"},
		{"buffers a request", "up-first-piece", lie{delay: 800 * time.Millisecond}, "body_starts_within_ms"},
		{"loses the first frame", "ws-first-frame", lie{response: replace("\x81\x02hi", "")}, "after_101: got"},
		{"drops Upgrade", "ws-first-frame", lie{request: replace("Upgrade: websocket\r\n", "")}, "header_joined: Upgrade"},
		{"swaps answers", "ka-pipeline-mixed", lie{response: replace("201 a", "202 a")}, "statuses: got"},
	} {
		t.Run(tt.name+" "+tt.id, func(t *testing.T) {
			t.Parallel()
			stage := NewStage()
			behind := started(t, stage.Serve)
			front := started(t, func(c *Conn) { tt.lie.relay(t, c, behind.Addr()) })
			timed(t, func() error {
				return judged(Run(deadline(t), caseOf(t, tt.id), Target{Addr: front.Addr(), Stage: stage}), tt.failure)
			})
		})
	}
}

func (l lie) relay(t *testing.T, c *Conn, behind string) {
	up, err := net.Dial("tcp", behind)
	if err != nil {
		t.Error(err)
		return
	}
	there := make(chan struct{})
	go func() {
		defer close(there)
		l.pass(c, up, c.conn, l.request)
	}()
	l.pass(c, c.conn, up, l.response)
	_ = c.conn.Close()
	<-there
	_ = up.Close()
}

// pass copies until from ends, and passes that on.
func (l lie) pass(c *Conn, to, from net.Conn, change func([]byte) []byte) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if l.delay > 0 && n > 0 {
			c.Pause(l.delay)
		}
		piece := buf[:n]
		if change != nil {
			piece = change(piece)
		}
		if _, werr := to.Write(piece); err != nil || werr != nil {
			break
		}
	}
	_ = to.(*net.TCPConn).CloseWrite() // the other side may be gone
}

func caseOf(t *testing.T, id string) Case {
	t.Helper()
	cases, err := Load(os.DirFS("testdata"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		if c.ID == id {
			return c
		}
	}
	t.Fatalf("no case %s", id)
	return Case{}
}
