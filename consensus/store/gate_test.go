package store

import (
	"errors"
	"testing"

	"github.com/hashicorp/raft"
)

// TestGated: what may not be written is not, and its writer hears why; reading goes
// on.
func TestGated(t *testing.T) {
	no := errors.New("no")
	var answer error
	disk := Gated(func() error { return answer })(nothing{})
	if err := disk.StoreLogs(nil); err != nil {
		t.Error(err)
	}
	answer = no
	if err := disk.StoreLogs(nil); !errors.Is(err, no) {
		t.Errorf("a write that is refused: %v", err)
	}
	if err := disk.DeleteRange(1, 2); !errors.Is(err, no) {
		t.Errorf("a removal that is refused: %v", err)
	}
	if err := disk.GetLog(1, nil); err != nil {
		t.Errorf("a read: %v", err)
	}
}

// nothing is a disk that does all at once, and keeps none of it.
type nothing struct{}

func (nothing) StoreLogs([]*raft.Log) error      { return nil }
func (nothing) GetLog(uint64, *raft.Log) error   { return nil }
func (nothing) DeleteRange(uint64, uint64) error { return nil }
func (nothing) Close() error                     { return nil }
