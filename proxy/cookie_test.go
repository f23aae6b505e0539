package proxy

import (
	"strings"
	"testing"
	"time"
)

func TestCookieValues(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	seen := map[string]bool{}
	for range 1000 {
		v := string(newCookie(now))
		if seen[v] || seen[v[:4]+v[23:]] { // neither the whole nor what hides the time comes twice
			t.Fatalf("%s came twice", v)
		}
		seen[v], seen[v[:4]+v[23:]] = true, true
		if age, ok := cookieAge([]byte(v), now.Add(time.Hour)); !ok || age != time.Hour {
			t.Fatalf("%s is %v old (%v), want an hour", v, age, ok)
		}
	}
	v := newCookie(now)
	for _, foreign := range []string{"", "s1", string(v[:26]), string(v) + "A", string(v[:26]) + "=", strings.Repeat(".", 27)} {
		if _, ok := cookieAge([]byte(foreign), now); ok {
			t.Errorf("%q passes for ours", foreign)
		}
	}
	for _, later := range []time.Duration{-2 * time.Hour, 401 * 24 * time.Hour} {
		if _, ok := cookieAge(v, now.Add(later)); ok {
			t.Errorf("one of %v ago passes for ours", later)
		}
	}
}

// A cookie that would expire is given again, once in half of its time, and one
// that the client made up never.
func TestCookieRenewal(t *testing.T) {
	made := time.Unix(1_800_000_000, 0)
	k := newCookies(CookieConfig{Name: "starling", TTL: time.Hour})
	v := newCookie(made)
	for _, step := range []struct {
		at   time.Duration
		want bool
	}{
		{0, false}, {29 * time.Minute, false}, {31 * time.Minute, true}, {32 * time.Minute, false}, {60 * time.Minute, false},
		{62 * time.Minute, true}, {63 * time.Minute, false}, {24 * time.Hour, true}, {24*time.Hour + time.Minute, false},
	} {
		if got := k.due(v, made.Add(step.at)); got != step.want {
			t.Errorf("after %v: due %v, want %v", step.at, got, step.want)
		}
	}
	if k.due([]byte("made-up-by-a-client-0000000"), made.Add(48*time.Hour)) {
		t.Error("a foreign value is renewed")
	}
	for range 2 * renewals { // others do not keep it from being renewed
		k.due(newCookie(made), made.Add(40*time.Minute))
	}
	if !k.due(v, made.Add(25*time.Hour)) {
		t.Error("not renewed after so many others")
	}
	if newCookies(CookieConfig{Name: "starling"}).due(v, made.Add(300*24*time.Hour)) {
		t.Error("a cookie that does not expire is renewed")
	}
}

// On its way: the client gets the value that it has, with its time anew.
func TestCookieIsGivenAgain(t *testing.T) {
	s := newSessionScene(t, func(cfg *Config) { edit(cfg, func(s *SessionConfig) { s.Cookie.TTL = time.Hour }) })
	value := string(newCookie(time.Now().Add(-45 * time.Minute)))
	ask := "GET / HTTP/1.1\r\nHost: h\r\nCookie: starling=" + value + "\r\n\r\n"
	if head, _ := s.dial().ask(ask); !strings.Contains(head, "\r\nSet-Cookie: starling="+value+"; Path=/; HttpOnly; Max-Age=3600; SameSite=Lax\r\n") {
		t.Errorf("head %q", head)
	}
	if head, _ := s.dial().ask(ask); strings.Contains(head, "Set-Cookie") {
		t.Errorf("head %q", head)
	}
}
