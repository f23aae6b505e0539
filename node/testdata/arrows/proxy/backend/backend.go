package backend

import (
	"testing/iotest" // want testing

	"github.com/starling-lb/starling/node/api" // want arrow
)
