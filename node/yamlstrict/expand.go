package yamlstrict

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"
)

const (
	maxInsert  = 64 << 10 // bytes of a file that ${file:PATH} puts in
	maxInserts = 1 << 20  // bytes that all ${} of a configuration put in together
)

// expand replaces ${NAME} by a variable of the environment and ${file:PATH} by
// a file without its last newline, so that secrets need not stand in the
// configuration. $${ is a plain ${. What was put in is not looked at again.
func (d *decoder) expand(s string) (string, error) {
	var out strings.Builder
	for {
		i := strings.Index(s, "${")
		if i < 0 {
			out.WriteString(s)
			return out.String(), nil
		}
		if i > 0 && s[i-1] == '$' {
			out.WriteString(s[:i-1] + "${")
			s = s[i+2:]
			continue
		}
		name, rest, closed := strings.Cut(s[i+2:], "}")
		if !closed {
			return "", errors.New("has a ${ without }; write ${NAME} or ${file:PATH}, or $${ for the characters themselves")
		}
		value, err := d.lookup(name)
		if err != nil {
			return "", err
		}
		if d.room -= len(value); d.room < 0 {
			return "", fmt.Errorf("all ${} of the file put in more than %s; write less", sizeText(maxInserts))
		}
		out.WriteString(s[:i] + value)
		s = rest
	}
}

func (d *decoder) lookup(name string) (string, error) {
	path, isFile := strings.CutPrefix(name, "file:")
	switch {
	case isFile:
		return insert(path)
	case !isVariable(name):
		return "", fmt.Errorf("${%s} names no variable; write ${NAME} or ${file:PATH}, or $${ for the characters themselves", cut(name))
	}
	value, ok := d.Env(name)
	switch {
	case !ok:
		return "", fmt.Errorf("variable %s is not set; set it in the environment, or write the value here", name)
	case !utf8.ValidString(value):
		return "", fmt.Errorf("variable %s is not UTF-8; set it to text", name)
	}
	return value, nil
}

func isVariable(name string) bool {
	for i, r := range name {
		if r != '_' && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return name != ""
}

func insert(path string) (string, error) {
	data, err := ReadSmall(path, maxInsert)
	switch {
	case err != nil:
		return "", fmt.Errorf("%w; name a file that this process can read", err)
	case !utf8.Valid(data):
		return "", fmt.Errorf("file %s is not UTF-8; name a file with text", quote(path))
	}
	text := strings.TrimSuffix(string(data), "\n")
	return strings.TrimSuffix(text, "\r"), nil
}

// ReadSmall reads a whole regular file of at most limit bytes: a pipe or a
// device could block or never end.
func ReadSmall(path string, limit int64) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, readError(path, err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no regular file", quote(path))
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, readError(path, err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, readError(path, err)
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("%s is longer than %s", quote(path), sizeText(limit))
	}
	return data, nil
}

// readError keeps the cause and drops the name of the system call.
func readError(path string, err error) error {
	var at *os.PathError
	if errors.As(err, &at) {
		err = at.Err
	}
	return fmt.Errorf("%s cannot be read: %w", quote(path), err)
}

func cut(s string) string { return strings.Trim(quote(s), `"`) }
