package engine

import (
	"errors"
	"fmt"
	"io"
	"math"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Kind is a program that runs models.
type Kind string

// The engines that are known; the list is the contract's.
const (
	VLLM     Kind = "vllm"
	SGLang   Kind = "sglang"
	TGI      Kind = "tgi"
	LlamaCpp Kind = "llamacpp"
)

// Reading is what an engine says of itself at one moment.
type Reading struct {
	Engine  Kind
	Running int     // requests that are worked on
	Waiting int     // requests that it holds back
	Cache   float64 // share of its cache for contexts in use, 0 to 1; 0 where it tells none
}

// ErrNoEngine says that a page is none of a known engine's.
var ErrNoEngine = errors.New("the page is none of vllm, sglang, tgi, llamacpp")

// dialect names what an engine's page calls things. Where a name changed, the
// newer comes first.
type dialect struct {
	kind             Kind
	running, waiting string
	cache            []string
}

// dialects are taken from the projects' own references as of 2026-11:
// docs.vllm.ai/en/latest/design/metrics (kv_cache_usage_perc; gpu_cache_usage_perc
// before), docs.sglang.io/references/production_metrics,
// huggingface.co/docs/text-generation-inference/reference/metrics and
// github.com/ggml-org/llama.cpp, tools/server/README.md.
func dialects() []dialect {
	return []dialect{
		{VLLM, "vllm:num_requests_running", "vllm:num_requests_waiting", []string{"vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"}},
		{SGLang, "sglang:num_running_reqs", "sglang:num_queue_reqs", []string{"sglang:token_usage"}},
		{TGI, "tgi_batch_current_size", "tgi_queue_size", nil},
		{LlamaCpp, "llamacpp:requests_processing", "llamacpp:requests_deferred", []string{"llamacpp:kv_cache_usage_ratio"}},
	}
}

// Kinds lists every Kind.
func Kinds() []Kind {
	var all []Kind
	for _, d := range dialects() {
		all = append(all, d.kind)
	}
	return all
}

// maxPage bounds what is read of a page.
const maxPage = 4 << 20

// Parse reads an engine's page in the Prometheus text format; want limits it to
// one engine, "" takes any. Several series of a name (models, ranks) add up, but
// for the cache, of which the fullest counts.
func Parse(page io.Reader, want Kind) (Reading, error) {
	limited := &io.LimitedReader{R: page, N: maxPage + 1}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(limited)
	if limited.N == 0 {
		return Reading{}, fmt.Errorf("the page is longer than %d bytes", maxPage)
	}
	if err != nil {
		return Reading{}, fmt.Errorf("read the page: %w", err)
	}
	for _, d := range dialects() {
		if want != "" && d.kind != want {
			continue
		}
		running, ok := families[d.running]
		if !ok {
			continue
		}
		r := Reading{Engine: d.kind, Running: count(running), Waiting: count(families[d.waiting])}
		for _, name := range d.cache {
			if f, ok := families[name]; ok {
				r.Cache = fullest(f)
				break
			}
		}
		return r, nil
	}
	return Reading{}, ErrNoEngine
}

// count adds up a family of gauges. What is no number counts as nothing.
func count(f *dto.MetricFamily) int {
	sum := 0.0
	for _, m := range f.GetMetric() {
		if v := value(m); v > 0 && v < math.MaxInt32 {
			sum += v
		}
	}
	return int(min(math.Round(sum), math.MaxInt32))
}

func fullest(f *dto.MetricFamily) float64 {
	most := 0.0
	for _, m := range f.GetMetric() {
		if v := value(m); v > most {
			most = v
		}
	}
	return min(most, 1)
}

// value is a gauge's, or that of what gives no type.
func value(m *dto.Metric) float64 {
	if g := m.GetGauge(); g != nil {
		return g.GetValue()
	}
	return m.GetUntyped().GetValue()
}
