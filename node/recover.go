package node

import (
	"errors"
	"path/filepath"

	"github.com/starling-lb/starling/shards/meta"
)

// Recovery is a cluster whose shard 0 lost its majority, about to begin again from
// what this node has. The node does not run: its directory is locked meanwhile.
type Recovery struct {
	*meta.Recovery
	dir *dataDir
}

// Recover looks at the node's directory. Nothing is changed before Do.
func Recover(c Config) (*Recovery, error) {
	dir, err := openDataDir(c.Node.DataDir)
	if err != nil {
		return nil, err
	}
	r, err := meta.Recover(dir.path, dir.id)
	if err != nil {
		return nil, errors.Join(err, dir.close())
	}
	return &Recovery{r, dir}, nil
}

// Order is the file that Do writes.
func (r *Recovery) Order() string { return filepath.Join(r.dir.path, meta.OrderFile) }

// Close lets go of the directory.
func (r *Recovery) Close() error { return r.dir.close() }
