package wirecase

import (
	"flag"
	"testing"

	"go.uber.org/goleak"
)

// These tests wait far more than they compute, so many run side by side
// whatever the number of processors; -parallel given by hand has no effect.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "24"); err != nil {
		panic("BUG: " + err.Error())
	}
	goleak.VerifyTestMain(m)
}
