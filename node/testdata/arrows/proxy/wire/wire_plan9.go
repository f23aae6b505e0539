//go:build plan9 && never

package wire

import (
	"golang.org/x/sys/plan9"

	"github.com/starling-lb/starling/proxy/backend" // want arrow
)
