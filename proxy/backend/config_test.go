package backend

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestParseURL(t *testing.T) {
	for _, c := range []struct{ url, host, dial string }{
		{"http://127.0.0.1:9001", "127.0.0.1:9001", "127.0.0.1:9001"},
		{"http://127.0.0.1:9001/", "127.0.0.1:9001", "127.0.0.1:9001"},
		{"http://localhost", "localhost", "localhost:80"},
		{"http://localhost:80", "localhost", "localhost:80"},
		{"http://localhost:443", "localhost:443", "localhost:443"},
		{"http://[::80]:80/", "[::80]", "[::80]:80"},
		{"http://localhost:", "localhost", "localhost:80"},
		{"HTTP://Big.Example:8080", "Big.Example:8080", "Big.Example:8080"},
		{"http://[::1]:9001", "[::1]:9001", "[::1]:9001"},
		{"http://[2001:db8::1]", "[2001:db8::1]", "[2001:db8::1]:80"},
		{"http://h:65535", "h:65535", "h:65535"},
		{"http://h:1", "h:1", "h:1"},
		{"https://localhost", "localhost", "localhost:443"},
		{"https://localhost:443", "localhost", "localhost:443"},
		{"https://localhost:80", "localhost:80", "localhost:80"},
		{"https://[2001:db8::1]", "[2001:db8::1]", "[2001:db8::1]:443"},
	} {
		got, err := ParseURL(c.url)
		if got.TLS != strings.HasPrefix(c.url, "https") || got.Name != strings.Trim(c.dial[:strings.LastIndexByte(c.dial, ':')], "[]") {
			t.Errorf("ParseURL(%q) = %+v", c.url, got)
		}
		if err != nil || got.Host != c.host || got.Dial != c.dial {
			t.Errorf("ParseURL(%q) = %+v, %v", c.url, got, err)
		}
	}
}

// What is refused is quoted, with what to write instead.
func TestParseURLRefused(t *testing.T) {
	for url, word := range map[string]string{
		"":                       "scheme",
		"127.0.0.1:9001":         "no URL",
		"localhost:9001":         "scheme",
		"//h:1":                  "scheme",
		"ftp://h:1":              "scheme",
		"https://h:0":            "port",
		"http:h":                 "no host",
		"http://":                "no host",
		"http://:9001":           "no host",
		"http:///x":              "no host",
		"http://h/v1":            "more than",
		"http://h//":             "more than",
		"http://h/?a=b":          "more than",
		"http://h?a=b":           "more than",
		"http://h#f":             "more than",
		"http://u@h":             "more than",
		"http://u:p@h":           "more than",
		"http://h:0":             "port",
		"http://h:65536":         "port",
		"http://h:99999999999":   "port",
		"http://h:x":             "no URL",
		"http://h:-1":            "no URL",
		"http://::1:9001":        "no URL",
		"http://[::1":            "no URL",
		"http://h h":             "no URL",
		"http://h\r\nX: y:9001/": "no URL",
	} {
		_, err := ParseURL(url)
		if err == nil || !strings.Contains(err.Error(), word) || !strings.Contains(err.Error(), "; ") {
			t.Errorf("ParseURL(%q): %v, want %q and what to write", url, err, word)
		}
	}
}

// faults collects what a Validate reports.
func faults(validate func(func(key, format string, args ...any))) (keys []string) {
	validate(func(key, format string, args ...any) {
		if text := fmt.Sprintf(format, args...); text == "" || strings.Contains(text, "%!") {
			key += " (badly said)"
		}
		keys = append(keys, key)
	})
	return keys
}

func TestValidate(t *testing.T) {
	good := func(change func(*Config)) []string {
		c := DefaultConfig()
		c.URL = "http://h"
		change(&c)
		return faults(c.Validate)
	}
	outlier := func(change func(*OutlierConfig)) []string {
		c := DefaultOutlier()
		change(&c)
		return faults(c.Validate)
	}
	for _, c := range []struct {
		name string
		got  []string
		want []string
	}{
		{"default", good(func(*Config) {}), nil},
		{"an id", good(func(c *Config) { c.ID = "büro/3" }), nil},
		{"an id that ends a header's line", good(func(c *Config) { c.ID = "b1\r\nX: y" }), []string{"id"}},
		{"an id that a terminal obeys", good(func(c *Config) { c.ID = "b\x1b[31m" }), []string{"id"}},
		{"an id that no table can hold", good(func(c *Config) { c.ID = strings.Repeat("b", 301) }), []string{"id"}},
		{"no url", good(func(c *Config) { c.URL = "" }), []string{"url"}},
		{"bad url", good(func(c *Config) { c.URL = "h" }), []string{"url"}},
		{"weight 0 and no url", good(func(c *Config) { c.URL, c.Weight = "", 0 }), []string{"url", "weight"}},
		{"weight 1000", good(func(c *Config) { c.Weight = 1000 }), nil},
		{"weight 1001", good(func(c *Config) { c.Weight = 1001 }), []string{"weight"}},
		{"negative weight", good(func(c *Config) { c.Weight = -1 }), []string{"weight"}},
		{"a cap", good(func(c *Config) { c.MaxStreams = 16 }), nil},
		{"negative cap", good(func(c *Config) { c.MaxStreams = -1 }), []string{"max_streams"}},
		{"outlier default", outlier(func(*OutlierConfig) {}), nil},
		{"off", outlier(func(c *OutlierConfig) { c.ConsecutiveFailures = 0 }), nil},
		{"negative failures", outlier(func(c *OutlierConfig) { c.ConsecutiveFailures = -1 }), []string{"consecutive_failures"}},
		{"no base", outlier(func(c *OutlierConfig) { c.BaseEjection = 0 }), []string{"base_ejection"}},
		{"max below base", outlier(func(c *OutlierConfig) { c.MaxEjection = time.Second }), []string{"max_ejection"}},
		{"max is base", outlier(func(c *OutlierConfig) { c.MaxEjection = c.BaseEjection }), nil},
		{"percent", outlier(func(c *OutlierConfig) { c.MaxEjectedPercent = 101 }), []string{"max_ejected_percent"}},
		{"negative percent", outlier(func(c *OutlierConfig) { c.MaxEjectedPercent = -1 }), []string{"max_ejected_percent"}},
		{"0 and 100 %", append(outlier(func(c *OutlierConfig) { c.MaxEjectedPercent = 0 }), outlier(func(c *OutlierConfig) { c.MaxEjectedPercent = 100 })...), nil},
	} {
		if !slices.Equal(c.got, c.want) {
			t.Errorf("%s: faults of %q, want %q", c.name, c.got, c.want)
		}
	}
}
