package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// errPatch is wrapped where a text does not stand in its file exactly once: the
// code has changed, and the mutant must.
var errPatch = errors.New("the patch does not apply")

// patched are the files of a mutant as it has them, by their names below root.
func (m mutant) patched(root string) (map[string]string, error) {
	files := map[string]string{}
	for _, e := range m.edits {
		text, known := files[e.file]
		if !known {
			raw, err := os.ReadFile(filepath.Join(root, e.file))
			if err != nil {
				return nil, fmt.Errorf("mutant %s: %w", m.name, err)
			}
			text = string(raw)
		}
		if n := strings.Count(text, e.old); n != 1 {
			return nil, fmt.Errorf("mutant %s: %w: in %s it stands %d times: %q", m.name, errPatch, e.file, n, e.old)
		}
		files[e.file] = strings.Replace(text, e.old, e.new, 1)
	}
	return files, nil
}
