package main

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

const (
	pause    = 100 * time.Millisecond // between two pictures, for the nodes
	interval = 15 * time.Second       // and for the rules
)

// film is what the metrics that the rules speak of were, picture after picture.
type film struct {
	wanted   func(metric string) bool
	series   map[string][]float64 // by name and labels; NaN: not there
	pictures int
	nodes    func() map[string]string // base URLs of the admin APIs by the instance's name
	last     map[string]string        // the last answer of each
}

func newFilm(wanted func(string) bool, nodes func() map[string]string) *film {
	return &film{wanted: wanted, series: map[string][]float64{}, nodes: nodes, last: map[string]string{}}
}

// roll takes so many pictures.
func (f *film) roll(ctx context.Context, pictures int) error {
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for range pictures {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		for instance, base := range f.nodes() {
			if err := f.scrape(ctx, instance, base); err != nil {
				return err
			}
		}
		f.pictures++
		f.fill()
	}
	return nil
}

// fill notes which series were not in the last picture.
func (f *film) fill() {
	for name, values := range f.series {
		for len(values) < f.pictures {
			values = append(values, math.NaN())
		}
		f.series[name] = values
	}
}

// still lets time pass in which nothing happens.
func (f *film) still(pictures int) {
	for name, values := range f.series {
		f.series[name] = append(values, slices.Repeat(values[len(values)-1:], pictures)...)
	}
	f.pictures += pictures
}

func (f *film) scrape(ctx context.Context, instance, base string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/metrics", nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("scrape %s: %w", instance, err)
	}
	defer resp.Body.Close()
	var text strings.Builder
	if _, err := fmt.Fprint(&text, readAll(resp.Body)); err != nil {
		return err
	}
	f.last[instance] = text.String()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text.String()))
	if err != nil {
		return fmt.Errorf("scrape %s: %w", instance, err)
	}
	for name, family := range families {
		if f.wanted(name) {
			f.develop(family, instance)
		}
	}
	return nil
}

// develop adds a family's samples to the picture.
func (f *film) develop(family *dto.MetricFamily, instance string) {
	name := family.GetName()
	for _, m := range family.Metric {
		labels := []string{label("instance", instance)}
		for _, l := range m.Label {
			labels = append(labels, label(l.GetName(), l.GetValue()))
		}
		switch {
		case m.Counter != nil:
			f.add(name, labels, m.Counter.GetValue())
		case m.Gauge != nil:
			f.add(name, labels, m.Gauge.GetValue())
		case m.Histogram != nil:
			for _, b := range m.Histogram.Bucket {
				f.add(name+"_bucket", append(labels, label("le", strconv.FormatFloat(b.GetUpperBound(), 'g', -1, 64))), float64(b.GetCumulativeCount()))
			}
			f.add(name+"_count", labels, float64(m.Histogram.GetSampleCount()))
		}
	}
}

func label(name, value string) string { return name + "=" + strconv.Quote(value) }

func (f *film) add(name string, labels []string, value float64) {
	labels = slices.Sorted(slices.Values(labels))
	key := name + "{" + strings.Join(labels, ",") + "}"
	values := f.series[key]
	for len(values) < f.pictures {
		values = append(values, math.NaN())
	}
	f.series[key] = append(values, value)
}
