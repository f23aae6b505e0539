package proxy

import (
	"testing"
	"time"
)

// The series of a backend that left stay for a while, so that a scrape sees the
// last of it, and go then; those of one that is back stay.
func TestSeriesOfLeavers(t *testing.T) {
	var l leavers
	now := time.Unix(1000, 0)
	l.add("a", now)
	l.add("b", now.Add(time.Minute))
	if ids := l.due(now.Add(seriesKept - 1)); len(ids) != 0 {
		t.Errorf("%v went too soon", ids)
	}
	if ids := l.due(now.Add(seriesKept)); len(ids) != 1 || ids[0] != "a" {
		t.Errorf("%v are due, want a", ids)
	}
	if ids := l.due(now.Add(2 * seriesKept)); len(ids) != 1 || ids[0] != "b" {
		t.Errorf("%v are due, want b", ids)
	}
	if ids := l.due(now.Add(3 * seriesKept)); len(ids) != 0 {
		t.Errorf("%v are due a second time", ids)
	}
}
