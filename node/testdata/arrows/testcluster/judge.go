package testcluster

import (
	"net/http/httptest" // want testing
	"testing"           // want testing

	"go.uber.org/goleak" // want testing

	"github.com/starling-lb/starling/cmd/starling" // want arrow
	"github.com/starling-lb/starling/consensus/transport"
	"github.com/starling-lb/starling/node"
	"github.com/starling-lb/starling/testcluster/llm"
)
