package node

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/valyala/fasthttp" // want owner
	"go.yaml.in/yaml/v4"

	"github.com/starling-lb/starling/consensus"
	"github.com/starling-lb/starling/node/admin"
	"github.com/starling-lb/starling/shards"
	"github.com/starling-lb/starling/testcluster" // want arrow
)

func metrics() {
	prometheus.MustRegister(nil) // want global
	reg := prometheus.NewRegistry()
	reg.MustRegister(nil)
	promhttp.Handler()                                                      // want global
	promhttp.HandlerFor(prometheus.DefaultGatherer, promhttp.HandlerOpts{}) // want global
}
