//go:build !race

package wire

import "testing"

// Once a connection's buffers have grown, a head costs no allocation. (The race detector
// has a sync.Pool lose things.)
func TestHeadsAllocateNothing(t *testing.T) {
	var q Request
	var p Response
	in, answer, w := commonRequest(), commonResponse(), commonForwarding()
	nominating := []byte(head("GET / HTTP/1.1", "Host: h", "Connection: keep-alive, X-Hop", "X-Hop: y"))
	body := events()
	var out []byte
	for name, f := range map[string]func() error{
		"request":  func() error { err := q.parse(in); out = q.AppendForward(out[:0], w); return err },
		"nominate": func() error { err := q.parse(nominating); out = q.AppendForward(out[:0], w); return err },
		"response": func() error { err := p.parse(answer, false); out = p.AppendAnswer(out[:0], Answering{}); return err },
		"dated": func() error {
			err := p.parse([]byte("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"), false)
			out = p.AppendAnswer(out[:0], Answering{})
			return err
		},
		"chunks": func() error { var c Chunks; _, _, err := c.Scan(body); return err },
	} {
		if n := testing.AllocsPerRun(200, func() {
			if err := f(); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
