package top

import (
	"github.com/spf13/cobra"

	"github.com/starling-lb/starling/consensus/transport" // want arrow
	"github.com/starling-lb/starling/node/client"
)
