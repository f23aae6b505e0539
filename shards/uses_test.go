package shards

import (
	"slices"
	"testing"
	"time"
)

// TestUses: what is old is found, and a use that is told late changes nothing.
func TestUses(t *testing.T) {
	var u Uses
	all := keys(1000)
	for i, k := range all {
		u.Touch(k, time.Duration(i)*time.Second)
	}
	u.Touch(all[5], 2000*time.Second)
	u.Touch(all[700], time.Second) // a report that was long on its way
	if at, _, ok := u.Last(all[700]); !ok || at != 700*time.Second {
		t.Errorf("last used at %v, %v", at, ok)
	}
	if at, _, ok := u.Last(all[0]); !ok || at != 0 {
		t.Errorf("the first was last used at %v, %v", at, ok)
	}
	want := append(slices.Clone(all[:5]), all[6:20]...)
	for what, got := range map[string][]Key{"before": u.Before(20*time.Second, 1000), "oldest": u.Oldest(19)} {
		if got := sorted(got); !slices.Equal(got, sorted(want)) {
			t.Errorf("%s: %v", what, got)
		}
	}
	if got := u.Before(20*time.Second, 7); len(got) != 7 {
		t.Errorf("asked for 7, got %d", len(got))
	}
	if got := u.Oldest(5000); len(got) != 1000 {
		t.Errorf("of 1000 sessions %d are the oldest", len(got))
	}
	if got := u.Oldest(0); len(got) != 0 {
		t.Errorf("asked for none, got %d", len(got))
	}
	for _, k := range all {
		u.Drop(k)
	}
	if _, _, ok := u.Last(all[0]); ok || u.Len() != 0 || len(u.Before(1<<62, 9)) != 0 {
		t.Errorf("%d are left", u.Len())
	}
}

// TestNew: a session is new from its birth under a leader until a use is told that is
// neither its first turn nor the first report of it.
func TestNew(t *testing.T) {
	var u Uses
	born, old := Key{1}, Key{2}
	u.Begin(old, time.Second)
	for i, want := range []bool{true, true, false, false, false} {
		at := time.Duration(2+i) * time.Second
		for range 3 { // what is told again is told once
			u.Touch(born, at)
			u.Touch(old, at)
		}
		if last, fresh, _ := u.Last(born); fresh != want || last != at {
			t.Errorf("at use %d: new is %v, last used at %v", i+1, fresh, last)
		}
		if last, fresh, _ := u.Last(old); fresh || last != at {
			t.Errorf("who was there before, at use %d: new is %v, last used at %v", i+1, fresh, last)
		}
	}
}

func sorted(all []Key) []Key {
	return slices.SortedFunc(slices.Values(all), func(a, b Key) int { return slices.Compare(a[:], b[:]) })
}
