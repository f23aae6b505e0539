package llm

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"
)

// maxRows bounds a trace in memory to about 24 MB.
const maxRows = 1_000_000

// Row is one request of a trace.
type Row struct {
	At        time.Duration // since the first row
	Context   int           // prompt tokens
	Generated int           // answer tokens
}

// ErrTrace is what ReadTrace wraps for a file it cannot use.
var ErrTrace = errors.New("bad trace")

// ReadTrace reads a CSV with the columns TIMESTAMP, ContextTokens and
// GeneratedTokens in any order, as the Azure LLM inference traces have them.
// Times are "2006-01-02 15:04:05.0000000" and must not run backwards.
func ReadTrace(r io.Reader) ([]Row, error) {
	in := csv.NewReader(r)
	in.ReuseRecord = true
	head, err := in.Read()
	if err != nil {
		return nil, fmt.Errorf("%w: header: %w", ErrTrace, err)
	}
	at := map[string]int{}
	for i, name := range head {
		at[name] = i
	}
	var cols [3]int
	for i, name := range []string{"TIMESTAMP", "ContextTokens", "GeneratedTokens"} {
		c, ok := at[name]
		if !ok {
			return nil, fmt.Errorf("%w: line 1: no column %s", ErrTrace, name)
		}
		cols[i] = c
	}
	return readRows(in, cols, maxRows)
}

func readRows(in *csv.Reader, cols [3]int, limit int) ([]Row, error) {
	var rows []Row
	var start time.Time
	for {
		rec, err := in.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrTrace, err)
		}
		line, _ := in.FieldPos(0)
		row, at, err := parseRow(rec, cols)
		if err != nil {
			return nil, fmt.Errorf("%w: line %d: %w", ErrTrace, line, err)
		}
		if len(rows) == 0 {
			start = at
		}
		row.At = at.Sub(start)
		if n := len(rows); n > 0 && row.At < rows[n-1].At {
			return nil, fmt.Errorf("%w: line %d: TIMESTAMP %s is before that of the line above", ErrTrace, line, rec[cols[0]])
		}
		if len(rows) == limit {
			return nil, fmt.Errorf("%w: over %d rows; cut it", ErrTrace, limit)
		}
		rows = append(rows, row)
	}
	if len(rows) == 0 {
		return nil, fmt.Errorf("%w: no rows", ErrTrace)
	}
	return rows, nil
}

func parseRow(rec []string, cols [3]int) (row Row, at time.Time, err error) {
	if at, err = time.Parse(time.DateTime, rec[cols[0]]); err != nil { // takes any fraction of a second
		return row, at, fmt.Errorf("TIMESTAMP: %w", err)
	}
	if row.Context, err = count(rec[cols[1]]); err != nil {
		return row, at, fmt.Errorf("ContextTokens: %w", err)
	}
	if row.Generated, err = count(rec[cols[2]]); err != nil {
		return row, at, fmt.Errorf("GeneratedTokens: %w", err)
	}
	return row, at, nil
}

func count(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err == nil && (n < 1 || n > maxContext) {
		err = fmt.Errorf("%d is not from 1 to %d", n, maxContext)
	}
	return n, err
}
