package journal

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/starling-lb/starling/node/api"
)

var _ prometheus.Collector = (*Journal)(nil)

func (*Journal) descs() [3]*prometheus.Desc {
	return [3]*prometheus.Desc{
		prometheus.NewDesc("starling_events_total", "Changes of state that this node has told of, by kind.", []string{"kind"}, nil),
		prometheus.NewDesc("starling_events_lost_total", "Events that readers of /v1/events missed, since they were too slow.", nil, nil),
		prometheus.NewDesc("starling_events_readers", "Who follows /v1/events now.", nil, nil),
	}
}

// Describe implements prometheus.Collector.
func (j *Journal) Describe(out chan<- *prometheus.Desc) {
	for _, d := range j.descs() {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (j *Journal) Collect(out chan<- prometheus.Metric) {
	j.mu.Lock()
	defer j.mu.Unlock()
	d := j.descs()
	for _, kind := range api.EventKinds() {
		if kind != api.LostEvent {
			out <- prometheus.MustNewConstMetric(d[0], prometheus.CounterValue, float64(j.counts[kind]), string(kind))
		}
	}
	out <- prometheus.MustNewConstMetric(d[1], prometheus.CounterValue, float64(j.lost))
	out <- prometheus.MustNewConstMetric(d[2], prometheus.GaugeValue, float64(j.readers))
}
