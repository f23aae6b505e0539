package main

import "testing"

func TestTidierIsDue(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct {
		name  string
		looks []heap
		want  string // one letter a look: t where it tidies up
	}{
		{"little lies idle", []heap{{idle: 7 * mib}, {idle: 7 * mib}}, "--"},
		{"less than half of what is in use", []heap{{idle: 40 * mib, live: 100 * mib}}, "-"},
		{"more", []heap{{idle: 60 * mib, live: 100 * mib}}, "t"},
		{"busy", []heap{{idle: 60 * mib, allocated: 100 * mib}, {idle: 60 * mib, allocated: 105 * mib}, {idle: 60 * mib, allocated: 106 * mib}}, "--t"},
		{"once more, and no more", []heap{{idle: 60 * mib}, {}, {}, {}, {}, {}, {}}, "t--t---"},
		{"busy when it would be done once more", []heap{{idle: 60 * mib}, {}, {}, {allocated: 5 * mib}, {allocated: 5 * mib}, {allocated: 5 * mib}}, "t-----"},
	} {
		var d tidier
		got := ""
		for _, h := range c.looks {
			if d.due(h) {
				got += "t"
			} else {
				got += "-"
			}
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}
