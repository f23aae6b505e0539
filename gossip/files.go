package gossip

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// What gossip keeps in the data directory, a file each: how often the node has
// started, whom it knew, and its keys once a command has changed them. Without
// a directory nothing is kept.
const (
	bootFile  = "gossip-boot.json"
	knownFile = "gossip-known.json"
	keysFile  = "gossip-keys.json"

	filesFormat  = 1
	maxFile      = 1 << 20 // bytes
	knownEntries = 256
	knownFor     = 7 * 24 * time.Hour // nobody is asked for longer whether they are back
)

// acquaintance is a member as the next start will look for it.
type acquaintance struct {
	ID      string    `json:"id"`
	Address string    `json:"address"`
	Seen    time.Time `json:"seen"` // alive, last
}

type bootForm struct {
	Format int    `json:"format"`
	Boot   uint64 `json:"boot"`
}

type knownForm struct {
	Format int            `json:"format"`
	Known  []acquaintance `json:"known"`
}

type keysForm struct {
	Format     int      `json:"format"`
	Configured string   `json:"configured"` // mark of the configured keys that these came from
	Keys       [][]byte `json:"keys"`
}

// firstYear begins the seconds that a start's number is at least: in 2026 they
// are as short on the wire as can be.
const firstYear = 1767225600 // of 1970's seconds

// nextBoot numbers a start: higher than the last one, and no lower than the
// clock, so that also where the file was lost, or is that of an old backup, what
// was recorded of an earlier start is not taken for this one's. What cannot be
// read is an error.
func nextBoot(dir string, now time.Time) (uint64, error) {
	if dir == "" {
		return uint64(now.UnixMilli()), nil // grows from start to start, unless the clock is set back
	}
	var f bootForm
	path := filepath.Join(dir, bootFile)
	if err := readForm(path, &f); err != nil && !errors.Is(err, os.ErrNotExist) {
		return 0, fmt.Errorf("%w; restore the file, or move the data directory away to start as a new node", err)
	}
	if f.Format > filesFormat {
		return 0, fmt.Errorf("%s has format %d, this starling knows up to %d; run the starling that wrote it, or a newer one", path, f.Format, filesFormat)
	}
	f.Format, f.Boot = filesFormat, max(f.Boot+1, uint64(max(0, now.Unix()-firstYear)))
	return f.Boot, writeForm(path, f)
}

// loadKnown is whom we knew. A file that cannot be read only costs time: the
// seeds are asked all the same.
func loadKnown(dir string) ([]acquaintance, error) {
	var f knownForm
	if dir == "" {
		return nil, nil
	}
	err := readForm(filepath.Join(dir, knownFile), &f)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	return f.Known[:min(len(f.Known), knownEntries)], err
}

func saveKnown(dir string, known []acquaintance) error {
	if dir == "" {
		return nil
	}
	return writeForm(filepath.Join(dir, knownFile), knownForm{filesFormat, known})
}

// loadKeys are the keys that a command left, if they came from the keys that
// are configured now: who edits the configuration means it.
func loadKeys(dir string, configured [][]byte) ([][]byte, error) {
	if dir == "" || len(configured) == 0 {
		return configured, nil
	}
	var f keysForm
	err := readForm(filepath.Join(dir, keysFile), &f)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return configured, nil
	case err != nil:
		return nil, fmt.Errorf("%w; remove the file to start with the configured keys", err)
	case f.Configured != marksOf(configured) || len(f.Keys) == 0:
		return configured, nil
	}
	return f.Keys[:min(len(f.Keys), maxKeys)], nil
}

func saveKeys(dir string, configured [][]byte, r *ring) error {
	if dir == "" {
		return nil
	}
	f := keysForm{Format: filesFormat, Configured: marksOf(configured)}
	for _, s := range r.keys {
		f.Keys = append(f.Keys, s.key)
	}
	return writeForm(filepath.Join(dir, keysFile), f)
}

func marksOf(keys [][]byte) string {
	text := ""
	for _, k := range keys {
		text += mark(k)
	}
	return text
}

func readForm(path string, into any) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.Size() > maxFile {
		return fmt.Errorf("%s has %d bytes, at most %d can be right", path, info.Size(), maxFile)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("%s is malformed: %w", path, err)
	}
	return nil
}

// writeForm writes aside and renames, so that a crash leaves the old file or
// the new one.
func writeForm(path string, from any) error {
	data, err := json.MarshalIndent(from, "", "  ")
	if err != nil {
		panic("BUG: " + err.Error())
	}
	aside, err := os.OpenFile(path+".new", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = aside.Write(append(data, '\n'))
	if err = errors.Join(err, aside.Sync(), aside.Close()); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
