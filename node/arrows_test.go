package node_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The rules of the house that a machine can hold, read from the source alone:
// files of every operating system count, whatever tags they carry. The tables
// are the picture in docs/architecture.md; a change of theirs is a decision
// and wants a line in docs/decisions.

const (
	module     = "github.com/starling-lb/starling"
	maxLines   = 500 // of a file that is no test
	maxModules = 25  // that the binary imports directly
)

// arrow says which rooms of ours the code of a room may import. "x/..." means
// x and all below it; of several lines the first that matches counts.
type arrow struct{ room, may string }

func arrows() []arrow {
	return []arrow{
		{"cmd/starling/...", "cmd/starling/... testcluster/... node/..."},
		{"cmd/release", ""},            // builds the other one
		{"testcluster/llm", ""},        // users take it for their own tests: it stands alone
		{"testcluster/fault", ""},      // wraps what the seams take: connections, listeners
		{"testcluster/wirecase", ""},   // a judge that shares nothing with the judged
		{"testcluster/bench/load", ""}, // must not know which proxy it measures
		{"testcluster/...", "testcluster/... node/... shards/... gossip proxy/... consensus/..."},
		{"node/quorum", "consensus/... shards/... proxy/backend"},
		{"node", "node/... shards/... gossip proxy/... consensus/..."},
		{"node/admin", "node/api"},
		{"node/api", "proxy/backend"}, // the closed lists
		{"node/client", "node/api"},
		{"node/journal", "node/api"},
		{"node/handover", ""},
		{"node/discovery", "proxy/backend node/yamlstrict"},
		{"node/engine", "proxy/backend"},
		{"node/yamlstrict", ""},
		{"shards", "proxy/backend"},
		{"shards/meta", ""},
		{"gossip", "proxy/backend"},
		{"proxy", "proxy/wire proxy/backend"},
		{"proxy/wire", ""},
		{"proxy/backend", ""},
		{"proxy/health", "proxy/backend"},
		{"consensus", "consensus/transport consensus/store"},
		{"consensus/transport", ""},
		{"consensus/store", ""},
	}
}

// ground names the rooms whose tests, too, must not look up at whole nodes:
// what needs one is tested in testcluster.
const (
	ground = "proxy/... consensus/... shards/... gossip"
	above  = "node/... testcluster/... cmd/..."
)

// owner says which rooms may import a module that is not ours. One that is not
// here may be imported by none: a new dependency is a decision.
type owner struct{ module, rooms string }

func owners() []owner {
	return []owner{
		{"github.com/hashicorp/memberlist", "gossip"},
		{"github.com/hashicorp/raft", "consensus consensus/store"},
		{"github.com/hashicorp/raft-boltdb/v2", "consensus/store"},
		{"github.com/hashicorp/go-hclog", "consensus"},
		{"go.etcd.io/bbolt", "consensus/store"},
		{"github.com/miekg/dns", "node/discovery"},
		{"github.com/valyala/fasthttp", "proxy proxy/wire node/admin"},
		{"github.com/prometheus", "node node/admin node/engine node/journal node/quorum gossip proxy proxy/health testcluster/..."},
		{"github.com/spf13/cobra", "cmd/starling/..."},
		{"charm.land/bubbletea/v2", "cmd/starling/top"},
		{"go.yaml.in/yaml/v4", "node node/yamlstrict testcluster/alerts"},
		{"gonum.org/v1/plot", "testcluster/sim/show"},
		{"golang.org/x/sys", "node node/handover proxy/wire consensus testcluster/..."},
		{"github.com/anishathalye/porcupine", "testcluster/chaos/judge"},
	}
}

// testOnly is for test files alone: testcluster is linked into the binary.
const testOnly = "testing/... net/http/httptest go.uber.org/goleak"

// ban is a name of another package that our code must not use.
type ban struct{ rule, pkg, names, why string }

func bans() []ban {
	const registry = "is shared by all nodes of the process; give each node its own"
	return []ban{
		{"global", "github.com/prometheus/client_golang/prometheus", "DefaultRegisterer DefaultGatherer Register MustRegister Unregister", registry},
		{"global", "github.com/prometheus/client_golang/prometheus/promhttp", "Handler", registry},
		{"global", "net/http", "DefaultServeMux Handle HandleFunc", registry},
		{"global", "log/slog", "SetDefault", registry},
		{"global", "expvar", "Publish NewInt NewFloat NewMap NewString", registry},
	}
}

func testBans() []ban {
	return []ban{{"sleep", "time", "Sleep", "in a test; wait for the condition, or use testing/synctest"}}
}

// finding is a place that breaks a rule.
type finding struct {
	file string // below the root
	line int
	rule string
	what string
}

func (f finding) String() string { return fmt.Sprintf("%s:%d: %s: %s", f.file, f.line, f.rule, f.what) }

// source is one parsed file and what is wrong with it.
type source struct {
	*ast.File
	fset *token.FileSet
	name string // below the root
	room string
	test bool
	bad  []finding
}

func TestArrows(t *testing.T) {
	bad, err := survey("..", maxLines)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range bad {
		t.Error(f)
	}
}

// TestArrowsAreEnforced runs the same rules over a tree with planted faults:
// a line that ends in "// want RULE ..." breaks just these.
func TestArrowsAreEnforced(t *testing.T) {
	root := filepath.Join("testdata", "arrows")
	bad, err := survey(root, 50)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range bad {
		got = append(got, fmt.Sprintf("%s:%d: %s", f.file, f.line, f.rule))
	}
	want, err := planted(root)
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("found\n\t%s\nplanted\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
	for _, rule := range []string{"room", "arrow", "uphill", "owner", "testing", "init", "var", "global", "sleep", "long"} {
		if !slices.ContainsFunc(want, func(s string) bool { return strings.HasSuffix(s, " "+rule) }) {
			t.Errorf("no fault is planted for rule %q", rule)
		}
	}
}

// TestBinaryDependencies asks the go command what is linked into starling.
func TestBinaryDependencies(t *testing.T) {
	linked, direct, err := dependencies("../cmd/starling")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range linked {
		if p == "testing" {
			continue // hashicorp/raft links it, for helpers of its own; that nothing of ours does, TestArrows sees
		}
		if matches(testOnly+" honnef.co/go/tools/... golang.org/x/tools/...", p) {
			t.Errorf("%s is linked into the binary; it is for tests and tools only", p)
		}
	}
	if len(direct) == 0 || len(direct) > maxModules {
		t.Errorf("the binary has %d direct dependencies, allowed are 1 to %d: %v", len(direct), maxModules, direct)
	}
	for _, m := range direct {
		if !explained(t, m) {
			t.Errorf("no file in docs/decisions says why we depend on `%s`", m)
		}
	}
}

// survey reads every Go file below root as the go command would choose them,
// tags aside, and returns what breaks a rule.
func survey(root string, lines int) (bad []finding, err error) {
	seen := 0
	err = filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && p != root && (d.Name() == "testdata" || strings.ContainsAny(d.Name()[:1], "._")):
			return fs.SkipDir
		case d.IsDir() || path.Ext(p) != ".go":
			return nil
		}
		seen++
		src, err := read(root, p)
		if err != nil {
			return err
		}
		src.check(lines)
		bad = append(bad, src.bad...)
		return nil
	})
	if err == nil && seen == 0 {
		err = fmt.Errorf("survey %s: no Go file below it", root)
	}
	return bad, err
}

func read(root, p string) (*source, error) {
	rel, err := filepath.Rel(root, p)
	if err != nil {
		return nil, err
	}
	rel = filepath.ToSlash(rel)
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, p, nil, parser.ParseComments|parser.SkipObjectResolution)
	return &source{File: f, fset: fset, name: rel, room: path.Dir(rel), test: strings.HasSuffix(rel, "_test.go")}, err
}

func (s *source) fault(at token.Pos, rule, format string, args ...any) {
	s.bad = append(s.bad, finding{s.name, s.fset.Position(at).Line, rule, fmt.Sprintf(format, args...)})
}

func (s *source) check(lines int) {
	names := map[string]string{} // what the file calls a package: its path
	for _, im := range s.Imports {
		to := strings.Trim(im.Path.Value, `"`)
		names[localName(im, to)] = to
		s.checkImport(im, to)
	}
	if s.test {
		s.checkUses(names, testBans())
		return
	}
	s.checkUses(names, bans())
	for _, d := range s.Decls {
		s.checkDecl(d)
	}
	if f := s.fset.File(s.Package); f.LineCount() > lines {
		s.fault(f.LineStart(lines+1), "long", "the file has %d lines, allowed are %d; find the wall to move", f.LineCount(), lines)
	}
	if !slices.ContainsFunc(arrows(), func(a arrow) bool { return matches(a.room, s.room) }) {
		s.fault(s.Package, "room", "%s is no room of the house; a new one is a decision and a line in this test", s.room)
	}
}

func (s *source) checkImport(im *ast.ImportSpec, to string) {
	room, ours := strings.CutPrefix(to, module+"/")
	domain, _, _ := strings.Cut(to, "/")
	switch {
	case s.test && ours && matches(ground, s.room) && matches(above, room):
		s.fault(im.Pos(), "uphill", "a test of %s must not import %s; test it in testcluster", s.room, room)
	case s.test:
	case matches(testOnly, to):
		s.fault(im.Pos(), "testing", "%s is for test files only; take a small interface", to)
	case ours:
		s.checkArrow(im, room)
	case strings.Contains(domain, "."):
		s.checkOwner(im, to)
	}
}

func (s *source) checkArrow(im *ast.ImportSpec, to string) {
	for _, a := range arrows() {
		if !matches(a.room, s.room) {
			continue
		}
		if !matches(a.may, to) {
			s.fault(im.Pos(), "arrow", "%s must not import %s (it may: %s); declare what you need as an interface and let node put it in",
				s.room, to, cmp.Or(a.may, "nothing of ours"))
		}
		return
	}
}

func (s *source) checkOwner(im *ast.ImportSpec, to string) {
	var rooms []string
	for _, o := range owners() {
		if matches(o.module+"/...", to) {
			rooms = append(rooms, o.rooms)
		}
	}
	if all := strings.Join(rooms, " "); !matches(all, s.room) {
		s.fault(im.Pos(), "owner", "%s must not import %s; it belongs to %s", s.room, to, cmp.Or(all, "nobody yet, and a new dependency is a decision"))
	}
}

func (s *source) checkUses(names map[string]string, bans []ban) {
	ast.Inspect(s.File, func(n ast.Node) bool {
		sel, _ := n.(*ast.SelectorExpr)
		if sel == nil {
			return true
		}
		x, _ := sel.X.(*ast.Ident)
		if x == nil {
			return true
		}
		for _, b := range bans {
			if names[x.Name] == b.pkg && matches(b.names, sel.Sel.Name) {
				s.fault(sel.Pos(), b.rule, "%s.%s %s", x.Name, sel.Sel.Name, b.why)
			}
		}
		return true
	})
}

func (s *source) checkDecl(d ast.Decl) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil && d.Name.Name == "init" {
			s.fault(d.Pos(), "init", "runs once per process, not per node; do it in New or Start")
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			v, ok := spec.(*ast.ValueSpec)
			if ok && d.Tok == token.VAR && !isGuard(v) && !isError(v) && !isEmbed(d.Doc) && !isEmbed(v.Doc) {
				s.fault(v.Pos(), "var", "%s is shared by all nodes of the process; only errors, interface guards and embedded files may be package variables", v.Names[0])
			}
		}
	}
}

// isGuard knows "var _ Interface = ...".
func isGuard(v *ast.ValueSpec) bool {
	return v.Type != nil && !slices.ContainsFunc(v.Names, func(n *ast.Ident) bool { return n.Name != "_" })
}

// isError knows "var ErrX = errors.New(...)", whatever its case.
func isError(v *ast.ValueSpec) bool {
	if len(v.Values) != 1 || !strings.HasPrefix(strings.ToLower(v.Names[0].Name), "err") {
		return false
	}
	call, _ := v.Values[0].(*ast.CallExpr)
	if call == nil {
		return false
	}
	fun, _ := call.Fun.(*ast.SelectorExpr)
	if fun == nil {
		return false
	}
	from, _ := fun.X.(*ast.Ident)
	return from != nil && matches("errors.New fmt.Errorf", from.Name+"."+fun.Sel.Name)
}

func isEmbed(doc *ast.CommentGroup) bool {
	return doc != nil && slices.ContainsFunc(doc.List, func(c *ast.Comment) bool { return strings.HasPrefix(c.Text, "//go:embed ") })
}

// matches tells whether name is one of the space-separated patterns.
func matches(patterns, name string) bool {
	return slices.ContainsFunc(strings.Fields(patterns), func(p string) bool {
		tree, below := strings.CutSuffix(p, "/...")
		return name == tree || below && strings.HasPrefix(name, tree+"/")
	})
}

func localName(im *ast.ImportSpec, to string) string {
	if im.Name != nil {
		return im.Name.Name
	}
	return path.Base(to)
}

// planted collects the "// want" marks below root.
func planted(root string) (want []string, err error) {
	err = filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil || path.Ext(p) != ".go" {
			return err
		}
		text, err := os.ReadFile(p)
		rel := filepath.ToSlash(strings.TrimPrefix(p, root+string(filepath.Separator)))
		for i, line := range strings.Split(string(text), "\n") {
			_, rules, _ := strings.Cut(line, "// want ")
			for _, rule := range strings.Fields(rules) {
				want = append(want, fmt.Sprintf("%s:%d: %s", rel, i+1, rule))
			}
		}
		return err
	})
	return want, err
}

// dependencies lists the packages linked into the command in dir, and the
// modules that packages of ours among them import.
func dependencies(dir string) (linked, direct []string, err error) {
	cmd := exec.Command("go", "list", "-deps", "-json=ImportPath,Module,Imports", ".")
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, nil, fmt.Errorf("go list in %s: %w", dir, err)
	}
	home := map[string]string{} // package: module
	var ours []string           // imports of our packages
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct {
			ImportPath string
			Module     struct{ Path string }
			Imports    []string
		}
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, nil, fmt.Errorf("go list in %s: %w", dir, err)
		}
		linked, home[p.ImportPath] = append(linked, p.ImportPath), p.Module.Path
		if p.Module.Path == module {
			ours = append(ours, p.Imports...)
		}
	}
	for _, p := range ours {
		if m := home[p]; m != "" && m != module && !slices.Contains(direct, m) {
			direct = append(direct, m)
		}
	}
	return linked, direct, nil
}

// explained tells whether a decision names the module in backquotes.
func explained(t *testing.T, module string) bool {
	files, err := filepath.Glob("../docs/decisions/*.md")
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(files, func(f string) bool {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(string(text), "`"+module+"`")
	})
}
