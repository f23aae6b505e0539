package node

import (
	"os"
	"path/filepath"
	"testing"
)

// TestDataDirectoryIsTheNodesAlone: one that the node makes is, and of one that was
// there before it is known.
func TestDataDirectoryIsTheNodesAlone(t *testing.T) {
	for _, c := range []struct {
		name    string
		mode    os.FileMode // 0: the node makes it
		entered bool
	}{{"made", 0, false}, {"closed", 0o700, false}, {"read by the group", 0o750, true}, {"entered by all", 0o701, true}} {
		path := filepath.Join(t.TempDir(), "data")
		if c.mode != 0 {
			if err := os.Mkdir(path, c.mode); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(path, c.mode); err != nil { // whatever the umask
				t.Fatal(err)
			}
		}
		d, err := openDataDir(path)
		if err != nil {
			t.Fatal(err)
		}
		if d.entered() != c.entered {
			t.Errorf("%s: entered by others: %v, want %v", c.name, d.entered(), c.entered)
		}
		if err := d.close(); err != nil {
			t.Error(err)
		}
	}
}
