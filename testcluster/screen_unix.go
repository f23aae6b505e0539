//go:build unix

package testcluster

import (
	"os"

	"golang.org/x/sys/unix"
)

// columns is the width of the terminal that f is, or 0.
func columns(f *os.File) int {
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	if size.Col == 0 { // a terminal that does not tell
		return 80
	}
	return int(size.Col)
}
