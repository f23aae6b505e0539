// Command mutants plants bugs, one at a time, and sees whether the judge of chaos
// runs finds them. It changes no file of the tree: `go build -overlay` takes the
// patched ones from elsewhere. Run it in the module's root, as `make mutants` does.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/starling-lb/starling/testcluster/chaos"
)

func main() {
	only := flag.String("run", "", "expression that the names of mutants must match")
	list := flag.Bool("list", false, "only say which there are")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *only, *list); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// errMissed is wrapped where a bug was not found.
var errMissed = errors.New("the judge did not find it")

var errNone = errors.New("no mutant has such a name")

func run(ctx context.Context, only string, list bool) error {
	match, err := regexp.Compile(only)
	if err != nil {
		return fmt.Errorf("-run: %w", err)
	}
	dir, err := os.MkdirTemp("", "starling-mutants-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	l := lab{dir: dir, goTool: goTool()}
	// One without a bug comes first: a judge that always finds something finds nothing.
	all := slices.DeleteFunc(append(sound(), mutants()...), func(m mutant) bool { return !match.MatchString(m.name) })
	if len(all) == 0 {
		return fmt.Errorf("-run %s: %w; -list says which there are", only, errNone)
	}
	var errs []error
	for _, m := range all {
		if ctx.Err() != nil {
			break
		}
		fmt.Printf("%-20s %-9s %-8s %s", m.name, m.scenario, m.promise, m.bug)
		if list {
			fmt.Println()
			continue
		}
		began := time.Now()
		said, err := l.try(ctx, m)
		if err != nil {
			said = fmt.Sprint("MISSED: ", err)
			errs = append(errs, fmt.Errorf("mutant %s: %w", m.name, errMissed))
		}
		fmt.Printf(": %s (%v)\n", said, time.Since(began).Round(time.Second))
	}
	return errors.Join(append(errs, ctx.Err())...)
}

func goTool() string {
	if tool := os.Getenv("GO"); tool != "" {
		return tool
	}
	return "go"
}

// lab is where mutants are built.
type lab struct{ dir, goTool string }

const (
	buildTime = 10 * time.Minute
	runTime   = 5 * time.Minute
)

// try builds a mutant and has it play. It says which promises were broken.
func (l lab) try(ctx context.Context, m mutant) (string, error) {
	overlay, err := l.overlay(m)
	if err != nil {
		return "", err
	}
	binary := filepath.Join(l.dir, m.name)
	ctx, cancel := context.WithTimeout(ctx, buildTime)
	defer cancel()
	build := exec.CommandContext(ctx, l.goTool, "build", "-overlay", overlay, "-o", binary, "./cmd/starling")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build: %w\n%s", err, out)
	}
	return l.play(ctx, m, binary)
}

// overlay writes what is patched, and where it belongs.
func (l lab) overlay(m mutant) (string, error) {
	files, err := m.patched(".")
	if err != nil {
		return "", err
	}
	replace := map[string]string{}
	for name, text := range files {
		real, err := filepath.Abs(name)
		if err != nil {
			return "", err
		}
		copied := filepath.Join(l.dir, m.name+"-"+strings.ReplaceAll(name, "/", "-"))
		if err := os.WriteFile(copied, []byte(text), 0o600); err != nil {
			return "", err
		}
		replace[real] = copied
	}
	raw, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	file := filepath.Join(l.dir, m.name+".json")
	return file, os.WriteFile(file, raw, 0o600)
}

const seed = "1" // any would do

func (l lab) play(ctx context.Context, m mutant, binary string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, runTime)
	defer cancel()
	level := m.level
	if level == "" {
		level = chaos.Inside
	}
	run := exec.CommandContext(ctx, binary, "chaos", "--scenario", "testcluster/chaos/mutants/scenarios/"+m.scenario+".yaml", "--seed", seed, "--level", level)
	out, err := run.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1) {
		return "", fmt.Errorf("play: %w: %s", err, out)
	}
	return verdict(m, string(out), err == nil)
}

// verdict reads which promises a report says were broken. Where no bug is planted the
// run must also have ended well: something else could not be done.
func verdict(m mutant, text string, well bool) (string, error) {
	held, list := strings.Contains(text, "\n"+m.scenario+": all promises held\n"), ""
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, m.scenario+": broken: "); ok {
			list = strings.TrimSpace(rest)
		}
	}
	switch {
	case !held && list == "":
		return "no verdict", fmt.Errorf("%w: the run could not be made:\n%s", errMissed, text)
	case held && m.promise == "" && !well:
		return "trouble", fmt.Errorf("%w: all promises held, and something could not be done:\n%s", errMissed, text)
	case held && m.promise == "":
		return "held", nil
	case held:
		return "all held", errMissed
	case !slices.Contains(strings.Split(list, ", "), m.promise):
		return "broken: " + list, fmt.Errorf("%w: the run broke %s, not %s\n%s", errMissed, list, cmp.Or(m.promise, "nothing"), text)
	}
	return "found: " + list, nil
}
