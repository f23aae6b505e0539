package judge

import (
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/starling-lb/starling/testcluster/chaos/history"
)

// families reads what a node exposed; nothing where it could not be had.
func families(d history.Dump) map[string]*dto.MetricFamily {
	p := expfmt.NewTextParser(model.UTF8Validation)
	all, err := p.TextToMetricFamilies(strings.NewReader(d.Metrics))
	if err != nil {
		return nil
	}
	return all
}

// series are the values of a metric whose labels are as given, name and value in
// turns, and those of all its others by their labels.
func series(f *dto.MetricFamily, labels ...string) map[string]float64 {
	got := map[string]float64{}
	for _, m := range f.GetMetric() {
		is, name := map[string]string{}, ""
		for _, l := range m.GetLabel() {
			is[l.GetName()] = l.GetValue()
			name += " " + l.GetValue()
		}
		fits := true
		for i := 0; i+1 < len(labels); i += 2 {
			fits = fits && is[labels[i]] == labels[i+1]
		}
		if fits {
			got[strings.TrimSpace(name)] = m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return got
}

// total is the sum over all nodes, as they stood at the end.
func (t *trial) total(name string, labels ...string) (sum float64) {
	for _, d := range t.Last {
		for _, v := range series(families(d)[name], labels...) {
			sum += v
		}
	}
	return sum
}
