package main

import (
	"io"
	"strings"
	"testing"

	"github.com/starling-lb/starling/node/api"
)

// TestTablesSay: what the troubleshooting pages have people look for is in the tables.
func TestTablesSay(t *testing.T) {
	for _, c := range []struct {
		name       string
		table      func(io.Writer)
		head, line string
	}{
		{"a backend that is slow", func(w io.Writer) {
			showBackends(w, api.Backends{Backends: []api.Backend{{ID: "b1", Pool: "llm", State: "active", Slow: true, Weight: 1, Speed: 48.2, StepTime: 0.0214, Reason: "configured"}}})
		}, "SPEED\tSTEP\tREASON\n", "\t48.2/s\t21ms\tconfigured\n"},
		{"one of which nothing is known", func(w io.Writer) {
			showBackends(w, api.Backends{Backends: []api.Backend{{ID: "b1", Pool: "llm", State: "active", Weight: 1, Reason: "configured"}}})
		}, "SPEED\tSTEP\tREASON\n", "\t-\t-\tconfigured\n"},
		{"why no session moves", func(w io.Writer) {
			showPools(w, api.Pools{Pools: []api.Pool{{Name: "llm", Policy: "p2c", Usable: 2, Rebalance: api.Rebalance{Enabled: true, Reason: "shard 3: spike: 40 requests/s, above 31"}}}})
		}, "REBALANCE\tLAST LOOK\n", "\tno\tyes\tshard 3: spike: 40 requests/s, above 31\n"},
	} {
		var out strings.Builder
		if c.table(&out); !strings.Contains(out.String(), c.head) || !strings.HasSuffix(out.String(), c.line) {
			t.Errorf("%s:\n%s\nwant %q, %q", c.name, out.String(), c.head, c.line)
		}
	}
}
