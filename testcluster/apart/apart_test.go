package apart

import (
	"os"
	"strings"
	"testing"
	"time"
)

// hangs is a configuration's name with which the node's process hangs.
const hangs = "hangs"

// A node that is never ready is waited for to a limit, and killed.
func TestOneThatHangs(t *testing.T) {
	if os.Getenv(variable) == hangs {
		select {}
	}
	p, err := start("TestOneThatHangs", hangs, nil, 300*time.Millisecond)
	if err == nil || !strings.Contains(err.Error(), "was not within 300ms") {
		t.Errorf("%v, %v", p, err)
	}
}

// One that ends at once is not waited for.
func TestOneThatEnds(t *testing.T) {
	if err := Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	p, err := Start("TestOneThatEnds", "/nowhere/starling.yaml", nil)
	if err == nil || !strings.Contains(err.Error(), "ended before it was ready") {
		t.Errorf("%v, %v", p, err)
	}
}
