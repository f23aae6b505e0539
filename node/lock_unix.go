//go:build unix

package node

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// lockFile holds path for this process alone until the file is closed, also by
// the process's death.
func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = errors.New("another starling has it; stop that one, or give each node a node.data_dir of its own")
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock: %w", err), f.Close())
	}
	return f, nil
}
