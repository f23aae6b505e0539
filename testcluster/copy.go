package testcluster

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// CopyDir copies a stopped node's data directory. A socket that a killed node has
// left is no part of it.
func CopyDir(to, from string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		name, err2 := filepath.Rel(from, path)
		if err := errors.Join(err, err2); err != nil {
			return err
		}
		switch {
		case d.IsDir():
			return os.MkdirAll(filepath.Join(to, name), 0o700)
		case !d.Type().IsRegular():
			return nil
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, name), b, 0o600)
	})
}
