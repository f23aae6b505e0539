package meta

import (
	"testing"
	"time"
)

// A node is abreast as long as it hears the leader of meta: a break of more than a
// minute begins anew, also one that is not over.
func TestAbreast(t *testing.T) {
	var c contact
	const began = 5 * time.Hour // a machine that has been up for long
	if got := c.lasts(began); got != 0 {
		t.Errorf("before anybody was heard: %v", got)
	}
	for _, at := range []time.Duration{0, time.Second, 50 * time.Second, 100 * time.Second} {
		c.heard(began + at)
	}
	for at, want := range map[time.Duration]time.Duration{
		100 * time.Second: 100 * time.Second, 160 * time.Second: 160 * time.Second, 161 * time.Second: 0,
	} {
		if got := c.lasts(began + at); got != want {
			t.Errorf("after %v: abreast for %v, want %v", at, got, want)
		}
	}
	c.heard(began + 10*time.Minute)
	c.heard(began + 10*time.Minute + time.Second)
	if got := c.lasts(began + 10*time.Minute + 2*time.Second); got != 2*time.Second {
		t.Errorf("after a break: abreast for %v", got)
	}
}
