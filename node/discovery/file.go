package discovery

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/starling-lb/starling/node/yamlstrict"
	"github.com/starling-lb/starling/proxy/backend"
)

const (
	maxFile    = 4 << 20 // bytes of a file of backends
	filePeriod = 500 * time.Millisecond
)

// ReadFile reads a file of backends. Its error names every fault by file, line
// and key, a line each.
func ReadFile(path string) ([]backend.Config, error) {
	data, err := yamlstrict.ReadSmall(path, maxFile)
	if err != nil {
		return nil, fmt.Errorf("%w; name a file that this process can read", err)
	}
	return parseFile(path, data)
}

// fileForm is what a file of backends holds.
type fileForm struct {
	Backends []backend.Config `yaml:"backends" scalar:"url"`
}

func parseFile(path string, data []byte) ([]backend.Config, error) {
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, fmt.Errorf("%s:1: backends: is missing, the file is empty; write backends: [] where none is meant", path)
	}
	var l fileForm
	form := yamlstrict.Form{Elements: []any{backend.DefaultConfig()}, Env: func(string) (string, bool) { return "", false }}
	report, read := form.Decode(path, data, &l)
	if read {
		checkList(l.Backends, report.Fault)
	}
	faults := report.Faults()
	if len(faults) == 0 {
		return l.Backends, nil
	}
	lines := make([]string, len(faults))
	for i, f := range faults {
		lines[i] = f.String()
	}
	return nil, errors.New(strings.Join(lines, "\n"))
}

// checkList gives every backend its id, and finds what is wrong with any.
func checkList(list []backend.Config, fault func(key, format string, args ...any)) {
	first := map[string]int{}
	for i := range list {
		b, key := &list[i], fmt.Sprintf("backends[%d]", i)
		b.Validate(func(name, format string, args ...any) { fault(key+"."+name, format, args...) })
		if at, err := backend.ParseURL(b.URL); err == nil && b.ID == "" {
			b.ID = at.Dial
		}
		if j, twice := first[b.ID]; twice && b.ID != "" {
			fault(key+".id", "%q is also the id of backends[%d]; write another", b.ID, j)
			continue
		}
		first[b.ID] = i
	}
}

// fileWatch reads a file of backends when it has changed and then kept still
// for one look: what an editor or a copy has half written is not taken, even
// where it happens to be a list. It reads and compares instead of asking the
// system for events, which see neither a symlink that is swapped further up nor
// a network file system. It belongs to one goroutine.
type fileWatch struct {
	path  string
	begun bool
	seen  []byte // at the last look
	taken []byte // what was published, or found faulty
}

func (w *fileWatch) look(context.Context) ([]backend.Config, time.Duration, error) {
	data, err := yamlstrict.ReadSmall(w.path, maxFile)
	if err != nil {
		w.taken, w.seen = nil, nil
		return nil, filePeriod, err
	}
	still := !w.begun || bytes.Equal(data, w.seen)
	w.begun, w.seen = true, data
	if !still || w.taken != nil && bytes.Equal(data, w.taken) {
		return nil, filePeriod, errSame
	}
	w.taken = append([]byte{}, data...) // not nil, be it empty
	found, err := parseFile(w.path, data)
	return found, filePeriod, err
}
