package sim

import (
	"compress/gzip"
	"embed"
	"fmt"

	"github.com/starling-lb/starling/testcluster/llm"
)

//go:embed testdata/*.csv.gz
var traces embed.FS

// The traces that the package has; testdata/README.md says where they are from.
const (
	Chat = "chat"
	Code = "code"
)

// Trace is a load of real arrivals and sizes.
func Trace(name string) []llm.Row {
	rows, err := readTrace(name)
	if err != nil {
		panic("BUG: trace " + name + ": " + err.Error()) // it is part of the program
	}
	return rows
}

func readTrace(name string) ([]llm.Row, error) {
	f, err := traces.Open("testdata/" + name + ".csv.gz")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := gzip.NewReader(f)
	if err != nil {
		return nil, fmt.Errorf("decompress: %w", err)
	}
	return llm.ReadTrace(text)
}
