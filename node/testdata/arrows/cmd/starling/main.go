package main

import (
	"github.com/spf13/cobra"
	"go.etcd.io/bbolt" // want owner

	"github.com/starling-lb/starling/cmd/starling/top"
	"github.com/starling-lb/starling/node"
	"github.com/starling-lb/starling/node/client"
	"github.com/starling-lb/starling/nodes" // want arrow
	"github.com/starling-lb/starling/proxy" // want arrow
	"github.com/starling-lb/starling/testcluster"
)
