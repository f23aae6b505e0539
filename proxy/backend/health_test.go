package backend

import (
	"slices"
	"testing"
	"time"
)

func TestHealthConfig(t *testing.T) {
	for _, c := range []struct {
		change func(*HealthConfig)
		key    string
	}{
		{func(*HealthConfig) {}, ""},
		{func(c *HealthConfig) { c.Path = "health" }, "path"},
		{func(c *HealthConfig) { c.Path = "" }, "path"},
		{func(c *HealthConfig) { c.Path = "/a\r\nX: y" }, "path"},
		{func(c *HealthConfig) { c.ReadyPath = "ready" }, "ready_path"},
		{func(c *HealthConfig) { c.Type, c.ReadyPath = "tcp", "/ready" }, "ready_path"},
		{func(c *HealthConfig) { c.Interval = 0 }, "interval"},
		{func(c *HealthConfig) { c.Timeout = time.Millisecond }, "timeout"},
		{func(c *HealthConfig) { c.DownInterval = 0 }, "down_interval"},
		{func(c *HealthConfig) { c.Rise = 0 }, "rise"},
		{func(c *HealthConfig) { c.Fall = MaxLooks + 1 }, "fall"},
		{func(c *HealthConfig) { c.Jitter = .6 }, "jitter"},
		{func(c *HealthConfig) { c.Representatives = 0 }, "representatives"},
		{func(c *HealthConfig) { c.ExpectStatus = "ok" }, "expect_status"},
		{func(c *HealthConfig) { c.ExpectStatus = "" }, "expect_status"},
		{func(c *HealthConfig) { c.ExpectBody = "(" }, "expect_body"},
	} {
		cfg := DefaultHealth()
		c.change(&cfg)
		var keys []string
		cfg.Validate(func(key, _ string, _ ...any) { keys = append(keys, key) })
		if c.key == "" && keys != nil || c.key != "" && !slices.Equal(keys, []string{c.key}) {
			t.Errorf("faults at %q, want %q", keys, c.key)
		}
	}
}

func TestStatuses(t *testing.T) {
	s, err := ParseStatuses("200-299, 401,503")
	if err != nil {
		t.Fatal(err)
	}
	for status, want := range map[int]bool{199: false, 200: true, 299: true, 300: false, 401: true, 503: true, 502: false} {
		if s.Has(status) != want {
			t.Errorf("%d: %v", status, !want)
		}
	}
	for _, bad := range []string{"", "200-", "-200", "299-200", "99", "600", "2xx", "200,,204"} {
		if s, err := ParseStatuses(bad); err == nil {
			t.Errorf("%q is %v", bad, s)
		}
	}
}
