package llm

import (
	"github.com/starling-lb/starling/proxy"       // want arrow
	"github.com/starling-lb/starling/testcluster" // want arrow
)
