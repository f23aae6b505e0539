package chaos

import (
	"strings"
	"testing"
)

// TestRulesOfAWay: what one node sends another is lost, and nothing else: of both
// protocols or one, with relays between them and without.
func TestRulesOfAWay(t *testing.T) {
	bare := &tables{hosts: map[string]string{"n1": "10.0.0.1", "n2": "10.0.0.2"}}
	relayed := &tables{hosts: bare.hosts, doors: map[string]string{"n1": "10.0.1.1", "n2": "10.0.1.2"}}
	for _, c := range []struct {
		what string
		in   *tables
		path path
		want []string
	}{
		{"cut", bare, path{Off: true}, []string{"-s 10.0.0.1 -d 10.0.0.2 -j DROP"}},
		{"cut for UDP", bare, path{Off: true, UDP: true}, []string{"-s 10.0.0.1 -d 10.0.0.2 -p udp -j DROP"}},
		{"lossy", bare, path{Loss: 0.25}, []string{"-s 10.0.0.1 -d 10.0.0.2 -m statistic --mode random --probability 0.2500 -j DROP"}},
		{"only late", bare, path{Delay: 5}, nil},
		{"cut, relayed", relayed, path{Off: true}, []string{
			"-s 10.0.0.1 -d 10.0.1.2 -j DROP",        // calls and packets
			"-s 10.0.1.1 -d 10.0.0.2 -p tcp -j DROP", // what it answers on the other one's calls
		}},
		{"cut for TCP, relayed", relayed, path{Off: true, TCP: true}, []string{"-s 10.0.0.1 -d 10.0.1.2 -p tcp -j DROP", "-s 10.0.1.1 -d 10.0.0.2 -p tcp -j DROP"}},
		{"cut for UDP, relayed", relayed, path{Off: true, UDP: true}, []string{"-s 10.0.0.1 -d 10.0.1.2 -p udp -j DROP"}},
	} {
		var want strings.Builder
		for _, line := range c.want {
			want.WriteString("-A INPUT " + line + "\n")
		}
		if got := c.in.lines("n1", "n2", c.path); got != want.String() {
			t.Errorf("%s:\n%swant\n%s", c.what, got, want.String())
		}
	}
	if got := bare.lines("n1", "n3", path{Off: true}); got != "" {
		t.Errorf("to a node that is nowhere: %s", got)
	}
}

// TestRelaysAreWanted: by a scenario that has more than losses, or whose nemesis may.
func TestRelaysAreWanted(t *testing.T) {
	for text, want := range map[string]bool{
		"steps: [{fault: kill}]":                 false,
		"steps: [{fault: delay, by: 5ms}]":       true,
		"nemesis: {faults: 1}":                   true,
		"nemesis: {faults: 1, kinds: [kill]}":    false,
		"nemesis: {faults: 1, kinds: [delay]}":   true,
		"nemesis: {faults: 1, kinds: [corrupt]}": true,
		"steps: [{fault: reorder, share: 0.5}]":  true,
		"steps: [{fault: loss, loss: 0.1}]":      false,
		"steps: [{fault: partition, over: udp}]": false,
	} {
		if s, err := parse("own", []byte(text)); err != nil || s.relayed() != want {
			t.Errorf("%s: %v, %v", text, s.relayed(), err)
		}
	}
}

// TestSplit: relays and kernel share what happens on a way, and neither does what the
// other one does.
func TestSplit(t *testing.T) {
	for _, c := range []struct{ whole, relays, kernel path }{
		{path{}, path{}, path{}},
		{path{UDP: true, Off: true}, path{}, path{UDP: true, Off: true}},
		{path{TCP: true, Delay: 5}, path{TCP: true, Delay: 5}, path{}},
		{path{TCP: true, Loss: 0.1, Twice: 0.2}, path{TCP: true, Twice: 0.2}, path{TCP: true, Loss: 0.1}},
		{path{Off: true, Delay: 5, Behind: 0.1, Flipped: 0.3}, path{Delay: 5, Behind: 0.1, Flipped: 0.3}, path{Off: true}},
	} {
		if relays, kernel := split(c.whole); relays != c.relays || kernel != c.kernel {
			t.Errorf("%+v: relays %+v, kernel %+v; want %+v, %+v", c.whole, relays, kernel, c.relays, c.kernel)
		}
	}
}
