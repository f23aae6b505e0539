package proxy_test

import (
	"testing"
	clock "time"

	"go.uber.org/goleak"

	"github.com/starling-lb/starling/cmd/starling/top" // want uphill
	"github.com/starling-lb/starling/node/api"         // want uphill
	"github.com/starling-lb/starling/proxy"
	"github.com/starling-lb/starling/proxy/wire"
)

var cases = []string{"a"}

func TestNap(t *testing.T) {
	clock.Sleep(1) // want sleep
	clock.After(1)
}
