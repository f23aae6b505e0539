package quorum

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestBootsGrow, also when the clock is put back or the file is damaged.
func TestBootsGrow(t *testing.T) {
	dir, now := t.TempDir(), time.Unix(1_800_000_000, 0)
	last := uint64(0)
	for i, at := range []time.Time{now, now, now.Add(-time.Hour), now.Add(time.Hour)} {
		got, err := nextBoot(dir, at)
		if err != nil || got <= last {
			t.Fatalf("start %d: %d after %d, %v", i, got, last, err)
		}
		last = got
	}
	if err := os.WriteFile(filepath.Join(dir, bootFile), []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := nextBoot(dir, now.Add(2*time.Hour)); err != nil || got <= last {
		t.Errorf("after damage: %d after %d, %v", got, last, err)
	}
	if _, err := nextBoot(filepath.Join(dir, "gone"), now); err == nil {
		t.Error("a directory that is not there was taken")
	}
}
