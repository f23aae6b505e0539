package llm

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// heldCapacity is the KV cache a place in the batch stands for, in tokens: it
// only scales a gauge, nothing waits for it.
const heldCapacity = 8192

// metrics are vLLM's, under its names, in a registry of this server's own.
type metrics struct {
	registry *prometheus.Registry
	first    prometheus.Histogram // time to first token
	whole    prometheus.Histogram // of finished requests
	finished *prometheus.CounterVec
}

func newMetrics(s *Server) *metrics {
	model := prometheus.Labels{"model_name": s.opts.Model}
	m := &metrics{
		registry: prometheus.NewRegistry(),
		first: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "vllm:time_to_first_token_seconds", Help: "Time to first token in seconds.", ConstLabels: model,
			Buckets: []float64{.001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640},
		}),
		whole: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "vllm:e2e_request_latency_seconds", Help: "End to end request latency in seconds.", ConstLabels: model,
			Buckets: []float64{.3, .5, .8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960},
		}),
		finished: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "vllm:request_success_total", Help: "Requests that left the engine, by why they ended.", ConstLabels: model,
		}, []string{"finished_reason"}),
	}
	m.registry.MustRegister(m.first, m.whole, m.finished)
	gauge := func(name, help string, v func(load) float64) {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: model}, func() float64 { return v(s.engine.load()) }))
	}
	count := func(name, help string, v func(load) int64) {
		m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help, ConstLabels: model}, func() float64 { return float64(v(s.engine.load())) }))
	}
	used := func(l load) float64 { return min(1, float64(l.held)/float64(s.opts.MaxActive*heldCapacity)) }
	gauge("vllm:num_requests_running", "Requests in the batch.", func(l load) float64 { return float64(l.running) })
	gauge("vllm:num_requests_waiting", "Requests waiting for the batch.", func(l load) float64 { return float64(l.waiting) })
	gauge("vllm:kv_cache_usage_perc", "KV cache usage; 1 is all of it.", used)
	gauge("vllm:gpu_cache_usage_perc", "KV cache usage under its older name.", used)
	count("vllm:prompt_tokens_total", "Prompt tokens processed.", func(l load) int64 { return l.prompted })
	count("vllm:generation_tokens_total", "Tokens generated.", func(l load) int64 { return l.generated })
	count("vllm:prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache.", func(l load) int64 { return l.prompted })
	count("vllm:prefix_cache_hits_total", "Prompt tokens found in the prefix cache.", func(l load) int64 { return l.hit })
	return m
}

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

// count takes a turn that ended; finish is OpenAI's word for an end in order.
func (m *metrics) count(t Turn, finish string) {
	if !t.FirstByte.IsZero() {
		m.first.Observe(t.FirstByte.Sub(t.Start).Seconds())
	}
	switch t.Outcome {
	case Done:
		m.whole.Observe(t.End.Sub(t.Start).Seconds())
		m.finished.WithLabelValues(finish).Inc()
	case Shed: // never was in the engine
	default:
		m.finished.WithLabelValues("abort").Inc()
	}
}
