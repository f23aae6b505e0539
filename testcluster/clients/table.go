package main

import (
	"fmt"
	"io"
	"time"
)

// table is what was checked.
type table struct {
	rows  []row
	began time.Time // of the check that runs
}

type row struct {
	client, check string
	fault         string // "" if it passed
	took          time.Duration
}

func (t *table) add(client, check, fault string) {
	t.rows = append(t.rows, row{client, check, fault, time.Since(t.began)})
	t.began = time.Now()
}

func (t *table) failed() (n int) {
	for _, r := range t.rows {
		if r.fault != "" {
			n++
		}
	}
	return n
}

func (t *table) print(out io.Writer) {
	fmt.Fprintf(out, "\n%-12s %-60s %-8s %8s\n", "client", "check", "result", "ms")
	for _, r := range t.rows {
		result := "passed"
		if r.fault != "" {
			result = "FAILED"
		}
		fmt.Fprintf(out, "%-12s %-60s %-8s %8d\n", r.client, r.check, result, r.took.Milliseconds())
		if r.fault != "" {
			fmt.Fprintf(out, "%-12s   %s\n", "", r.fault)
		}
	}
	fmt.Fprintf(out, "%d checks, %d passed, %d failed\n", len(t.rows), len(t.rows)-t.failed(), t.failed())
}
