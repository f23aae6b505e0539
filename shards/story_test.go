package shards

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestStories runs each file of testdata against one table: a command, "----", and
// what it must say. After each command the table is written and read again, which
// must change nothing.
func TestStories(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no stories: %v", err)
	}
	for _, f := range files {
		t.Run(filepath.Base(f), func(t *testing.T) {
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			s := story{table: NewTable(), names: make(map[Key]string)}
			for _, step := range steps(string(text)) {
				if got := s.tell(t, step.command); got != step.want {
					t.Errorf("%s:%d: %s\nsaid:\n%s\nwant:\n%s", f, step.line, step.command, got, step.want)
				}
				var b bytes.Buffer
				if _, err := s.table.WriteTo(&b); err != nil {
					t.Fatal(err)
				}
				if s.table, err = readTable(&b); err != nil {
					t.Fatalf("%s:%d: the table cannot be read again: %v", f, step.line, err)
				}
			}
		})
	}
}

type step struct {
	line          int
	command, want string
}

func steps(text string) (all []step) {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if line != "----" {
			continue
		}
		s := step{line: i, command: lines[i-1]}
		for _, l := range lines[i+1:] {
			if l == "" {
				break
			}
			s.want += l + "\n"
		}
		all = append(all, s)
	}
	return all
}

type story struct {
	table *Table
	names map[Key]string
}

func (s *story) tell(t *testing.T, command string) string {
	verb, rest, _ := strings.Cut(command, " ")
	args := make(map[string]string)
	for _, a := range strings.Fields(rest) {
		k, v, _ := strings.Cut(a, "=")
		args[k] = v
	}
	var k Key
	copy(k[:], args["session"])
	s.names[k] = args["session"]
	switch verb {
	case "bind":
		c := Command{Op: OpBind, Session: k, Backend: args["backend"]}
		if _, err := fmt.Sscan(args["seen"], &c.Seen); err != nil {
			t.Fatalf("%s: %v", command, err)
		}
		back, err := decodeCommand(c.encode())
		if err != nil || back != c {
			t.Fatalf("%s: came back as %+v, %v", command, back, err)
		}
		r := s.table.Apply(c)
		if r.Conflict {
			return "conflict: " + s.line(k, r.Binding)
		}
		return s.line(k, r.Binding)
	case "get":
		b, _ := s.table.Get(k)
		return s.line(k, b)
	case "table":
		return s.all()
	}
	t.Fatalf("unknown command %q", command)
	return ""
}

func (s *story) line(k Key, b Binding) string {
	if b.Epoch == 0 {
		return s.names[k] + " unbound\n"
	}
	return fmt.Sprintf("%s -> %s epoch %d\n", s.names[k], b.Backend, b.Epoch)
}

func (s *story) all() string {
	out := fmt.Sprintf("floor %d\n", s.table.floor)
	for i, b := range s.table.backends {
		out += fmt.Sprintf("%d %s\n", i, b)
	}
	var lines []string
	for k := range s.table.bindings {
		b, _ := s.table.Get(k)
		lines = append(lines, s.line(k, b))
	}
	slices.Sort(lines)
	return out + strings.Join(lines, "")
}
