package transport

import "github.com/starling-lb/starling/consensus" // want arrow
