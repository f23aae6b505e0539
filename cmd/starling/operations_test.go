package main

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestOperationsNameRealCommands: what the unit and the container file run is a command
// of this program, with flags that it has; and what they count on is there.
func TestOperationsNameRealCommands(t *testing.T) {
	unit, container := operations(t, "starling.service"), operations(t, "Containerfile")
	var calls [][]string
	for _, line := range regexp.MustCompile(`(?m)^Exec\w+=/usr/local/bin/starling (.+)$`).FindAllStringSubmatch(unit, -1) {
		calls = append(calls, strings.Fields(line[1]))
	}
	entry := ""
	for _, line := range regexp.MustCompile(`(?m)^#?.*\b(ENTRYPOINT|CMD) (\[.+\])$`).FindAllStringSubmatch(container, -1) {
		var words []string
		if err := json.Unmarshal([]byte(line[2]), &words); err != nil {
			t.Fatalf("%s: %v", line[0], err)
		}
		if line[1] == "ENTRYPOINT" {
			entry = words[0]
			continue
		}
		if words[0] == "/starling" { // of a health check; the other is what the entry point is given
			words = words[1:]
		}
		calls = append(calls, words)
	}
	if len(calls) < 4 || entry != "/starling" {
		t.Errorf("%d calls were found, the entry point is %q", len(calls), entry)
	}
	for _, words := range calls {
		c, rest, err := newRoot().Find(words)
		if err == nil {
			err = c.ParseFlags(rest)
		}
		if err != nil || !c.Runnable() {
			t.Errorf("starling %s: %v", strings.Join(words, " "), err)
		}
	}
	for _, line := range []string{
		"Type=notify", "NotifyAccess=all", "KillMode=process", "StartLimitIntervalSec=0", "SuccessExitStatus=3 4", "RestartPreventExitStatus=2", "ExecReload=/bin/kill -HUP $MAINPID",
	} {
		if !strings.Contains(unit, "\n"+line+"\n") {
			t.Errorf("the unit has no %s, which upgrades, stops and restarts count on", line)
		}
	}
}

func operations(t *testing.T, name string) string {
	text, err := os.ReadFile("../../docs/operations/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
