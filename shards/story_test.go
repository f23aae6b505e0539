package shards

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
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

// tell understands "verb key=value ... a:b:c ...".
func (s *story) tell(t *testing.T, command string) string {
	t.Helper()
	verb, rest, _ := strings.Cut(command, " ")
	args := make(map[string]string)
	var items []string
	for _, a := range strings.Fields(rest) {
		if k, v, ok := strings.Cut(a, "="); ok {
			args[k] = v
		} else {
			items = append(items, a)
		}
	}
	number := func(text string) uint64 {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("%s: %v", command, err)
		}
		return n
	}
	targets := func() (all []Target) {
		for _, i := range items {
			p := strings.Split(i, ":")
			all = append(all, Target{s.key(p[0]), Epoch(number(p[1])), strings.TrimSuffix(p[2], "-")})
		}
		return all
	}
	switch verb {
	case "bind", "rebind":
		c := Command{Op: OpBind, Session: s.key(args["session"]), Backend: args["backend"], Seen: Epoch(number(args["seen"]))}
		if verb == "rebind" {
			c.Op = OpRebind
		}
		r := s.apply(t, 1, c)
		if r.Conflict {
			return "conflict: " + s.line(c.Session, r.Binding)
		}
		return s.line(c.Session, r.Binding)
	case "move":
		return s.changes(s.apply(t, number(args["term"]), Command{Op: OpMove, Term: number(args["hold"]), Targets: targets()}))
	case "down":
		return s.changes(s.apply(t, 1, Command{Op: OpDown, Pool: args["pool"], Revision: number(args["revision"]), Backend: args["backend"], Targets: targets()}))
	case "holder":
		return s.changes(s.apply(t, 1, Command{Op: OpHolder, Node: args["node"], Boot: number(args["boot"])}))
	case "unholder":
		return s.changes(s.apply(t, 1, Command{Op: OpUnholder, Node: args["node"], Boot: number(args["boot"])}))
	case "set":
		c := Command{Op: OpSet, Pool: args["pool"], Revision: number(args["revision"])}
		for _, i := range items {
			id, weight, _ := strings.Cut(i, ":")
			c.Backends = append(c.Backends, Backend{id, uint32(number(weight))})
		}
		return s.changes(s.apply(t, 1, c))
	case "get":
		b, _ := s.table.Get(s.key(args["session"]))
		return s.line(s.key(args["session"]), b)
	case "table":
		return s.all()
	}
	t.Fatalf("unknown command %q", command)
	return ""
}

func (s *story) key(name string) (k Key) {
	copy(k[:], name)
	s.names[k] = name
	return k
}

// apply has the command go over the wire first.
func (s *story) apply(t *testing.T, term uint64, c Command) Result {
	t.Helper()
	back, err := decodeCommand(c.encode())
	slices.SortFunc(c.Backends, byID)
	if err != nil || !reflect.DeepEqual(back, c) {
		t.Fatalf("%+v came back as %+v, %v", c, back, err)
	}
	return s.table.Apply(term, back)
}

func (s *story) changes(r Result) (out string) {
	if r.Conflict {
		return "conflict\n"
	}
	for _, c := range r.Changes {
		to := "let go"
		if c.Binding.Epoch > 0 {
			to = fmt.Sprintf("to %s epoch %d", c.Binding.Backend, c.Binding.Epoch)
		}
		out += fmt.Sprintf("%s from %d %s\n", s.names[c.Session], c.Was, to)
	}
	if out == "" {
		return "done\n"
	}
	return out
}

func (s *story) line(k Key, b Binding) string {
	if b.Epoch == 0 {
		return s.names[k] + " unbound\n"
	}
	return fmt.Sprintf("%s -> %s epoch %d\n", s.names[k], b.Backend, b.Epoch)
}

func (s *story) all() string {
	out := fmt.Sprintf("floor %d\n", s.table.floor)
	for i, b := range s.table.backends.text {
		out += fmt.Sprintf("%d %s\n", i, orDash(b))
	}
	holds := s.table.Holders()
	for _, h := range holds {
		out += fmt.Sprintf("holds %s %d\n", h.Node, h.Boot)
	}
	if len(holds) == 0 {
		out += "holds -\n"
	}
	for _, set := range s.table.Sets() {
		var all []string
		for _, b := range set.Backends {
			all = append(all, fmt.Sprint(b.ID, " ", b.Weight))
		}
		out += fmt.Sprintf("%s %d: %s\n", set.Pool, set.Revision, orDash(strings.Join(all, ", ")))
	}
	var lines []string
	for k := range s.table.sessions.all() {
		b, _ := s.table.Get(k)
		lines = append(lines, s.line(k, b))
	}
	slices.Sort(lines)
	return out + strings.Join(lines, "")
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
