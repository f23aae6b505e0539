package wirecase

import (
	"regexp"
	"strings"
	"testing"
)

// G26: sticky cookies that scripts can read, that cross networks in clear, that
// name a backend's address, or that change while the session goes on: HAProxy and
// Traefik set no flag by themselves, others put a hash of the address into it.
func TestG26StickyCookie(t *testing.T) {
	onEachLoop(t, func(t *testing.T, l loop) {
		var addrs []string
		for range 3 {
			b, _ := answering(t, func(c *Conn, m *Message) bool {
				return c.Send("HTTP/1.1 200 OK\r\nSet-Cookie: app=1; Path=/app\r\nContent-Length: 2\r\n\r\nok") == nil
			})
			addrs = append(addrs, b.Addr())
		}
		r := newRig(t, l, setup{backends: addrs, pool: ", headers: {expose_backend: true}, sticky: {key: [\"cookie:starling\"]}"})
		first := r.ask(get("/"))
		if first.Status != 200 {
			t.Fatalf("status %d: %s", first.Status, first.Body)
		}
		set := first.Lines("Set-Cookie")
		if len(set) != 2 || set[0] != "app=1; Path=/app" {
			t.Fatalf("cookies %q, want the backend's and starling's", set)
		}
		form := regexp.MustCompile(`^starling=([A-Za-z0-9_-]{22,}); Path=/; HttpOnly; SameSite=Lax$`).FindStringSubmatch(set[1])
		if form == nil {
			t.Fatalf("cookie %q", set[1])
		}
		home := first.Lines("X-Starling-Backend")
		for range 5 {
			m := r.ask(get("/", "Cookie: app=1; starling="+form[1]))
			if got := m.Lines("X-Starling-Backend"); len(got) != 1 || got[0] != home[0] {
				t.Errorf("the session is at %q, and was at %q", got, home)
			}
			if got := m.Lines("Set-Cookie"); len(got) != 1 || strings.HasPrefix(got[0], "starling=") {
				t.Errorf("cookies %q, want the backend's alone", got)
			}
		}
		stranger := r.ask(get("/"))
		if other := stranger.Lines("Set-Cookie"); len(other) != 2 || other[1] == set[1] {
			t.Errorf("another client got %q", other)
		}
	})
}
