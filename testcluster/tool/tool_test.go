package tool

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
)

func TestRun(t *testing.T) {
	for _, c := range []struct {
		name     string
		args     []string
		ok       bool
		err      error
		code     int
		out, log string
	}{
		{"well", []string{"-of", "x"}, true, nil, 0, "checks x", ""},
		{"not well", nil, false, nil, 1, "checks all", ""},
		{"not checked", nil, true, errors.New("nobody is there"), 1, "checks all", "t: nobody is there"},
		{"help", []string{"-h"}, false, nil, 0, "", "what to check"},
		{"another flag", []string{"-to", "x"}, true, nil, 2, "", "t: there are only flags"},
		{"no flag", []string{"x"}, true, nil, 2, "", "t: there are only flags"},
	} {
		var out, log strings.Builder
		of := ""
		code := Tool{
			Name: "t", Bound: time.Minute,
			Flags: func(f *flag.FlagSet) { f.StringVar(&of, "of", "all", "what to check") },
			Do: func(ctx context.Context, out io.Writer) (bool, error) {
				if _, bound := ctx.Deadline(); !bound {
					t.Error("nothing bounds it")
				}
				fmt.Fprintf(out, "checks %s", of)
				return c.ok, c.err
			},
		}.Run(c.args, &out, &log)
		if code != c.code || out.String() != c.out || !strings.Contains(log.String(), c.log) {
			t.Errorf("%s: exit %d, %q, %q", c.name, code, out.String(), log.String())
		}
	}
}
