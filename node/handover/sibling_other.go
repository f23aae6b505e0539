//go:build !linux

package handover

import "os"

// start starts the heir, and returns what waits for its end and tells how it ended.
func start(p Program, files []uintptr) (*os.Process, func() string, error) {
	return child(p, files, nil)
}
