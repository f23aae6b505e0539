package backend

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// HealthConfig says how backends are asked whether they are well.
type HealthConfig struct {
	Enabled         bool          `yaml:"enabled"`
	Type            string        `yaml:"type" enum:"http,tcp"`     // tcp: a connection is enough
	Path            string        `yaml:"path"`                     // that tells whether the backend lives
	ReadyPath       string        `yaml:"ready_path"`               // likewise whether it wants streams; empty: it does while it lives
	Interval        time.Duration `yaml:"interval"`                 // between two checks; half of it while the verdict may change
	Timeout         time.Duration `yaml:"timeout"`                  // for one check, from the connect to the answer's end
	DownInterval    time.Duration `yaml:"down_interval"`            // between two checks of one that is down
	Rise            int           `yaml:"rise"`                     // good checks in a row that bring a backend back
	Fall            int           `yaml:"fall"`                     // failed checks in a row that put it out
	Jitter          float64       `yaml:"jitter"`                   // share by which an interval is longer or shorter
	ExpectStatus    string        `yaml:"expect_status"`            // statuses that are good, such as 200-299,401
	ExpectBody      string        `yaml:"expect_body"`              // regular expression that the body's first 64 KiB must match; empty: any
	SlowThreshold   time.Duration `yaml:"slow_threshold" auto:"-1"` // good checks that took longer are slow; 0s: none is
	Representatives int           `yaml:"representatives"`          // nodes of the cluster that check one backend
}

// SlowAuto has SlowThreshold follow the pool's own checks.
const SlowAuto = -1

// DefaultHealth holds the contract's defaults.
func DefaultHealth() HealthConfig {
	return HealthConfig{
		Enabled: true, Type: "http", Path: "/health", Interval: 2 * time.Second, Timeout: time.Second, DownInterval: 5 * time.Second,
		Rise: 2, Fall: 3, Jitter: 0.1, ExpectStatus: "200-399", SlowThreshold: SlowAuto, Representatives: 3,
	}
}

// Validate reports every fault by the key it concerns.
func (c HealthConfig) Validate(fault func(key, format string, args ...any)) {
	path := func(key, p string) {
		if !strings.HasPrefix(p, "/") || strings.ContainsAny(p, " \t\r\n#") {
			fault(key, "%q is no path; write for example /health", p)
		}
	}
	path("path", c.Path)
	if c.ReadyPath != "" {
		path("ready_path", c.ReadyPath)
	}
	if c.ReadyPath != "" && c.Type == "tcp" {
		fault("ready_path", "is set, but type tcp asks for no path; write type: http, or take it out")
	}
	span := func(key string, d time.Duration) {
		if d < 10*time.Millisecond {
			fault(key, "%v is too short; write at least 10ms, for example 2s", d)
		}
	}
	span("interval", c.Interval)
	span("timeout", c.Timeout)
	span("down_interval", c.DownInterval)
	row := func(key string, n int) {
		if n < 1 || n > MaxLooks {
			fault(key, "%d is out of range; write 1 to %d", n, MaxLooks)
		}
	}
	row("rise", c.Rise)
	row("fall", c.Fall)
	if c.Jitter > 0.5 {
		fault("jitter", "%v is out of range; write 0 to 0.5", c.Jitter)
	}
	if c.Representatives < 1 {
		fault("representatives", "%d is too few; write at least 1", c.Representatives)
	}
	if _, err := ParseStatuses(c.ExpectStatus); err != nil {
		fault("expect_status", "%v", err)
	}
	if _, err := regexp.Compile(c.ExpectBody); err != nil {
		fault("expect_body", "%v; write a regular expression as Go knows them (RE2)", err)
	}
}

// Statuses is a set of HTTP statuses.
type Statuses []span

type span struct{ from, to int }

// Has tells whether a status is in the set.
func (s Statuses) Has(status int) bool {
	for _, r := range s {
		if r.from <= status && status <= r.to {
			return true
		}
	}
	return false
}

// ParseStatuses reads a list of statuses and ranges, such as 200-299,401.
func ParseStatuses(text string) (s Statuses, err error) {
	for part := range strings.SplitSeq(text, ",") {
		first, last, ranged := strings.Cut(strings.TrimSpace(part), "-")
		if !ranged {
			last = first
		}
		from, bad := strconv.Atoi(first)
		to, worse := strconv.Atoi(last)
		if bad != nil || worse != nil || from < 100 || to > 599 || from > to {
			return nil, fmt.Errorf("%q is no list of statuses; write for example 200-399, or 200,204", text)
		}
		s = append(s, span{from, to})
	}
	return s, nil
}
