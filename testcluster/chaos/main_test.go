package chaos_test

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/starling-lb/starling/testcluster/chaos"
)

// TestMain is also what nodes and harnesses in processes of their own run.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case nodeArgument:
			if err := chaos.RunNode(os.Args[2:], os.Stdin, os.Stdout, os.Stderr); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			return
		case harnessArgument:
			harness()
			return
		}
	}
	goleak.VerifyTestMain(m)
}

const (
	nodeArgument    = "chaos-node"
	harnessArgument = "chaos-harness"
)

// program is what runs nodes here.
func program() []string { return []string{os.Args[0], nodeArgument} }
