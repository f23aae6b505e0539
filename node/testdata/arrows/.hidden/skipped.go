// Package skipped lies where the go command does not look, so it breaks no rule.
package skipped

import "github.com/starling-lb/starling/cmd/starling"

func init() {}
