package rolling

import (
	"fmt"
	"maps"
	"testing"
)

// TestRollingRestart: five nodes are stopped and started again one after the other,
// under load. No stream fails, no session loses its home, and no replica is moved: a
// node that comes back soon is awaited.
func TestRollingRestart(t *testing.T) {
	t.Parallel()
	b1, b2, b3 := newOrigin(t, "b1"), newOrigin(t, "b2"), newOrigin(t, "b3")
	f := newFleet(t, 5, func(int) string {
		return fmt.Sprintf(`pools:
  llm:
    backends: [{id: b1, url: %q}, {id: b2, url: %q}, {id: b3, url: %q}]
    backend: {engine: none}
    health: {enabled: false}
    sticky: {bind_timeout: 30s}
    rebalance: {enabled: false}
`, b1, b2, b3)
	})
	l := f.newLoad()
	f.eventually(func() string {
		if n := l.known(); n < len(sessions()) {
			return fmt.Sprintf("%d sessions have a home", n)
		}
		return ""
	})
	places, homes := f.places(0), f.homes(0)
	for i := range f.nodes {
		if cut := f.stop(i, patience); cut != 0 {
			t.Errorf("n%d cut %d streams", i+1, cut)
		}
		f.start(i)
		f.settle()
		if now := f.places(i); now != places {
			t.Errorf("after n%d's restart replicas are at\n%s, and were at\n%s", i+1, now, places)
		}
		served := l.served()
		f.eventually(func() string {
			if l.served() < served+users/2 {
				return "nothing is served"
			}
			return ""
		})
	}
	if now := f.homes(4); !maps.Equal(now, homes) {
		t.Errorf("sessions live at\n%v, and lived at\n%v", now, homes)
	}
	l.stop()
	for _, text := range l.wrong() {
		t.Error(text)
	}
	t.Logf("%d streams; %d requests were turned away by a node that drains, and taken by another", l.served(), l.again)
}
