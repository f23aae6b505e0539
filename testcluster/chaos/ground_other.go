//go:build !linux

package chaos

import (
	"fmt"
	"io"
)

// Usual is the level of a run that names none.
const Usual = Inside

func newGround(o Options, dir string) (ground, error) {
	if o.Level != Inside {
		return nil, fmt.Errorf("nodes in processes of their own need Linux: %w; --level inside works everywhere", ErrLevel)
	}
	return newInside(dir), nil
}

// Enter is for network namespaces, which there are none of.
func Enter(io.Writer, io.Writer) (code int, done bool, err error) {
	return 0, false, fmt.Errorf("network namespaces need Linux: %w", ErrLevel)
}

// RunNode is what a node's process does, where there are any.
func RunNode([]string, io.Reader, io.Writer, io.Writer) error {
	return fmt.Errorf("nodes in processes of their own need Linux: %w", ErrLevel)
}
