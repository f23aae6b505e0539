package wirecase

import (
	"fmt"
	"strings"
	"testing"
)

// G19: a handshake with no subprotocol got an empty field, and odd casing was
// not taken for an upgrade (github.com/traefik/traefik/issues/11301, 11240).
func TestG19Handshake(t *testing.T) {
	const frame = "\x81\x85\x01\x02\x03\x04igoho" // masked, text
	onEachLoop(t, func(t *testing.T, l loop) {
		b, d := answering(t, func(c *Conn, m *Message) bool {
			chosen := ""
			if m.Lines("Sec-WebSocket-Protocol") != nil {
				chosen = "Sec-WebSocket-Protocol: chat\r\n"
			}
			_ = c.Send("HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nUpgrade: WebSocket\r\n" +
				"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n" + chosen + "\r\n")
			buf := make([]byte, len(frame))
			for n, err := c.r.Read(buf); err == nil && c.Send(string(buf[:n])) == nil; n, err = c.r.Read(buf) {
			}
			return false
		})
		r := newRig(t, l, setup{backends: []string{b.Addr()}})
		common := []string{"Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits"}
		for i, tt := range []struct {
			name            string
			lines           []string
			offered, chosen string
		}{
			{"a: no subprotocol", []string{"Connection: Upgrade", "Upgrade: websocket"}, "[]", "[]"},
			{"b: odd casing", []string{"connection: keep-alive, upgrade", "upgrade: WebSocket"}, "[]", "[]"},
			{"c: two lines of offers", []string{"Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Protocol: superchat", "Sec-WebSocket-Protocol: chat"}, "[superchat chat]", "[chat]"},
		} {
			c := r.dial()
			m := r.next(c, get("/ws", append(tt.lines, common...)...), 1)
			if m.Status != 101 {
				t.Errorf("%s: got %d", tt.name, m.Status)
				continue
			}
			if got := fmt.Sprint(m.Lines("Sec-WebSocket-Protocol")); got != tt.chosen {
				t.Errorf("%s: the client got %s, want %s", tt.name, got, tt.chosen)
			}
			at := d.read()[i]
			if got := fmt.Sprint(elements(at.Lines("Sec-WebSocket-Protocol"))); got != tt.offered {
				t.Errorf("%s: the backend was offered %s, want %s", tt.name, got, tt.offered)
			}
			for _, line := range common {
				if !hasLine(at, line) {
					t.Errorf("%s: the backend did not get %q: %q", tt.name, line, at.Raw)
				}
			}
			if err := c.Send(frame); err != nil {
				t.Fatal(err)
			}
			r.within(c, func(s Seen) bool { return len(s.After101) >= len(frame) })
			if got := string(c.Seen().After101); got != frame {
				t.Errorf("%s: the frame came back as %q", tt.name, got)
			}
			c.Close()
		}
	})
}

func hasLine(m Message, line string) bool {
	for _, f := range m.Fields {
		if name, value, _ := strings.Cut(line, ": "); strings.EqualFold(f.Name, name) && f.Value == value {
			return true
		}
	}
	return false
}
