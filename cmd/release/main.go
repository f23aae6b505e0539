// Command release makes what is given to users: a static binary per system, what
// each is made of (an SBOM in CycloneDX's form), and checksums of all. The same
// commit and the same Go make the same bytes. It is not part of what it releases.
package main

import (
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
)

// target is a system to build for.
type target struct{ os, arch string }

func targets() []target {
	return []target{{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"}}
}

func main() {
	out := flag.String("out", "dist", "directory for what is made; it is made if it is missing, and has to be empty")
	dirty := flag.Bool("dirty", false, "release a tree with changes that are in no commit, or of no known commit")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := release(ctx, os.Stdout, *out, *dirty); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// errDirty is a tree that nobody could build again.
var errDirty = errors.New("the tree is not a commit as it is; commit what there is, or say -dirty")

func release(ctx context.Context, say io.Writer, out string, dirty bool) error {
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	if left, err := os.ReadDir(out); err != nil || len(left) > 0 {
		return errors.Join(err, fmt.Errorf("%s is not empty; remove it, or name another directory with -out", out))
	}
	var made, versions []string
	for _, t := range targets() {
		version, names, err := makeFor(ctx, t, out, dirty)
		if err != nil {
			return fmt.Errorf("%s/%s: %w", t.os, t.arch, err)
		}
		if versions = append(versions, version); version != versions[0] {
			return fmt.Errorf("%s/%s is %s, and %s was made before: the tree has changed meanwhile; begin anew", t.os, t.arch, version, versions[0])
		}
		for _, n := range names {
			fmt.Fprintln(say, filepath.Join(out, n))
		}
		made = append(made, names...)
	}
	fmt.Fprintln(say, filepath.Join(out, sumsName))
	return writeSums(out, made)
}

// makeFor makes the files for one system, and returns their names, and the version.
func makeFor(ctx context.Context, t target, out string, dirty bool) (version string, names []string, err error) {
	raw := filepath.Join(out, "building")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=true", "-ldflags=-s -w", "-o", raw, "./cmd/starling")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+t.os, "GOARCH="+t.arch)
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return "", nil, fmt.Errorf("build: %w; it has to run in the module's directory, with git at hand", err)
	}
	info, err := buildinfo.ReadFile(raw)
	if err != nil {
		return "", nil, err
	}
	if !dirty && !isCommit(info) {
		return "", nil, errors.Join(errDirty, os.Remove(raw))
	}
	name := fmt.Sprintf("starling_%s_%s_%s", strings.TrimPrefix(info.Main.Version, "v"), t.os, t.arch)
	if err := os.Rename(raw, filepath.Join(out, name)); err != nil {
		return "", nil, err
	}
	binary, err := os.ReadFile(filepath.Join(out, name))
	if err != nil {
		return "", nil, err
	}
	bom, err := billOf(info, sha256.Sum256(binary))
	if err != nil {
		return "", nil, err
	}
	return info.Main.Version, []string{name, name + ".cdx.json"}, os.WriteFile(filepath.Join(out, name+".cdx.json"), bom, 0o644)
}

const sumsName = "SHA256SUMS"

// writeSums writes what `sha256sum -c` reads.
func writeSums(dir string, names []string) error {
	slices.Sort(names)
	var text strings.Builder
	for _, n := range names {
		data, err := os.ReadFile(filepath.Join(dir, n))
		if err != nil {
			return err
		}
		fmt.Fprintf(&text, "%x  %s\n", sha256.Sum256(data), n)
	}
	return os.WriteFile(filepath.Join(dir, sumsName), []byte(text.String()), 0o644)
}
