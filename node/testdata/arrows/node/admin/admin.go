package admin

import (
	"github.com/valyala/fasthttp"

	"github.com/starling-lb/starling/node" // want arrow
	"github.com/starling-lb/starling/node/api"
	"github.com/starling-lb/starling/proxy/backend" // want arrow
)
