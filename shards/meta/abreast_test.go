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

// Every node that hears the leader of meta is abreast, with and without a replica of it;
// who is cut off is not, and begins anew when it is back.
func TestNodesAreAbreast(t *testing.T) {
	w := begin(t, 1, 5, 2)
	w.run(time.Minute)
	cut := w.nodes["n05"]
	if w.leads(0).box == cut {
		cut = w.nodes["n04"]
	}
	look := func(what string, least, most time.Duration) {
		t.Helper()
		for id, b := range w.nodes {
			got := b.keeper.Abreast()
			if b == cut && (got < least || got > most) {
				t.Errorf("%s: %s, which was cut off, is abreast for %v, want %v to %v", what, id, got, least, most)
			}
			if b != cut && got < 30*time.Second {
				t.Errorf("%s: %s is abreast for %v", what, id, got)
			}
		}
	}
	look("at first", 30*time.Second, time.Hour)
	cut.cut = true
	w.run(2 * time.Minute)
	look("while it is cut off", 0, 0)
	cut.cut = false
	w.run(20 * time.Second)
	look("when it is back", time.Second, 20*time.Second)
}
