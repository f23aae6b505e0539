package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// script runs one of the scripts, which prints a line per check: "ok NAME" or
// "FAILED NAME: WHY". At "open" it wants opened called.
func (r *rig) script(ctx context.Context, dir, name string, t *table, opened func()) error {
	cmd := exec.CommandContext(ctx, "node", filepath.Join(dir, name+".mjs"))
	cmd.Env = append(os.Environ(), r.env()...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	t.began = time.Now()
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("run node, which has to be installed: %w", err)
	}
	before, failed := len(t.rows), t.failed()
	for lines := bufio.NewScanner(out); lines.Scan(); {
		kind, rest, _ := strings.Cut(lines.Text(), " ")
		check, why, _ := strings.Cut(rest, ": ")
		switch {
		case kind == "ok":
			t.add(name, rest, "")
		case kind == "FAILED":
			t.add(name, check, why)
		case kind == "open" && opened != nil:
			opened()
		default:
			fmt.Fprintln(os.Stderr, name+":", lines.Text())
		}
	}
	if err := cmd.Wait(); err != nil && t.failed() == failed {
		return fmt.Errorf("script %s.mjs: %w", name, err)
	}
	if len(t.rows) == before {
		return fmt.Errorf("script %s.mjs checked nothing", name)
	}
	return nil
}
