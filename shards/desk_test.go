package shards

import (
	"sync"
	"testing"
)

// TestTheOwnerThatAnswersHears: where two are made for one replica at once, as when a
// node gets its first map while the replica opens, the one that is asked from then on
// is the one that hears what is applied. Else its feeds would tell of no move.
func TestTheOwnerThatAnswersHears(t *testing.T) {
	d := newDesk(Options{}.complete())
	entry := [][]byte{Command{Op: OpBind, Session: Key{1}, Backend: "b1"}.encode()}
	for range 2000 {
		m := NewMachine()
		var all sync.WaitGroup
		begin := make(chan struct{})
		for range 4 {
			o := NewOwner(nil, m, 1)
			all.Go(func() {
				<-begin
				d.own(1, o)
			})
		}
		close(begin)
		all.Wait()
		if _, err := m.Apply(1, 7, entry); err != nil {
			t.Fatal(err)
		}
		if o := d.owner(1); o.tapped != 7 {
			t.Fatal("who answers does not hear")
		}
	}
	d.stop()
}
