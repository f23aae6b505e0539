package backend

import (
	"slices"
	"strings"
	"testing"
)

// The contract's closed lists, copied from it word for word.
const (
	states  = "active warming draining unhealthy ejected removed"
	reasons = "done client_left client_slow backend_broke backend_timeout backend_refused idle deadline drained shed refused"
	codes   = "bad_request unsupported_coding unsupported_version no_route request_timeout body_too_large header_too_large " +
		"saturated backend_refused backend_broke backend_bad_response no_backend draining too_many_connections no_leader backend_timeout"
)

func words[T ~string](list []T) (all []string) {
	for _, w := range list {
		all = append(all, string(w))
	}
	return all
}

func TestClosedLists(t *testing.T) {
	for _, c := range []struct {
		name string
		got  []string
		want string
	}{
		{"states", words(States()), states},
		{"reasons", words(Reasons()), reasons},
		{"codes", words(Codes()), codes},
		{"sources of a cap", words([]CapSource{CapConfig, CapEngine, CapLearned, CapNone}), "config engine learned none"},
		{"states of a member", words([]MemberState{MemberAlive, MemberSuspect, MemberDead, MemberLeft, MemberDraining}), "alive suspect dead left draining"},
	} {
		if got := strings.Join(c.got, " "); got != c.want {
			t.Errorf("%s: %s\nwant %s", c.name, got, c.want)
		}
	}
}

func TestStatus(t *testing.T) {
	want := map[int]string{
		400: "bad_request", 501: "unsupported_coding", 505: "unsupported_version", 404: "no_route", 408: "request_timeout",
		413: "body_too_large", 431: "header_too_large", 429: "saturated", 502: "backend_refused backend_broke backend_bad_response",
		503: "no_backend draining too_many_connections no_leader", 504: "backend_timeout",
	}
	for _, c := range Codes() {
		status := c.Status()
		if !slices.Contains(strings.Fields(want[status]), string(c)) {
			t.Errorf("%s has status %d", c, status)
		}
		if got := c.RetryAfter(); got != (status == 429 || status == 503) {
			t.Errorf("%s has Retry-After: %v", c, got)
		}
	}
}

func TestUnknownCode(t *testing.T) {
	defer func() {
		if said, _ := recover().(string); !strings.HasPrefix(said, "BUG:") {
			t.Errorf("an unknown code: %q", said)
		}
	}()
	Code("rain").Status()
}
