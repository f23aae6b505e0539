package proxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// TracingConfig says where spans go, and of how many requests that bring no
// trace of their own.
type TracingConfig struct {
	OTLPEndpoint string  `yaml:"otlp_endpoint"` // a collector's OTLP/HTTP address; empty: off
	Sample       float64 `yaml:"sample"`        // share of traces that begin here, 0 to 1
}

// DefaultTracing exports nothing.
func DefaultTracing() TracingConfig { return TracingConfig{Sample: 0.01} }

// Validate reports every fault by the key it concerns.
func (c TracingConfig) Validate(fault func(key, format string, args ...any)) {
	if c.OTLPEndpoint != "" {
		u, err := url.Parse(c.OTLPEndpoint)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
			fault("otlp_endpoint", "%q is no address of a collector; write for example http://127.0.0.1:4318", withoutUser(c.OTLPEndpoint))
		}
	}
	if !(c.Sample >= 0 && c.Sample <= 1) { // NaN too
		fault("sample", "%v is no share; write 0 (none) to 1 (all), such as 0.01", c.Sample)
	}
}

// tracer sends spans to a collector: a queue like the access log's, bounded
// and beside the streams, in front of an exporter.
type tracer struct {
	sample float64
	queue  *accessLog
	to     *exporter
}

func newTracer(cfg TracingConfig, node string, drops prometheus.Counter, log *slog.Logger) *tracer {
	to := newExporter(cfg.OTLPEndpoint, node, drops, log)
	q := newAccessLog(to, drops)
	q.every, q.spans = time.Second, true
	return &tracer{sample: cfg.Sample, queue: q, to: to}
}

// stop sends what is left until ctx ends.
func (t *tracer) stop(ctx context.Context) {
	if t.queue.stop(ctx) != nil {
		t.to.cancel()
		<-t.queue.stopped
	}
}

const (
	exportTries    = 3
	exportTimeout  = 5 * time.Second        // of one try
	exportBackoff  = 500 * time.Millisecond // doubled and jittered
	exportPatience = 10 * time.Second       // with a collector that says when to come back
)

// withoutUser is an address without who asks there, and by which password.
func withoutUser(address string) string {
	at := strings.LastIndexByte(address, '@')
	if at < 0 {
		return address
	}
	scheme, _, _ := strings.Cut(address, "//")
	return scheme + "//" + address[at+1:]
}

// exporter posts spans as OTLP/HTTP JSON. A batch that cannot be delivered is
// lost, after a few tries; its queue counts it.
type exporter struct {
	url        string
	head, tail []byte // around the spans of a request
	body       []byte
	client     *http.Client
	drops      prometheus.Counter
	log        *slog.Logger
	failing    bool
	ctx        context.Context // of all that it does
	cancel     context.CancelFunc
}

func newExporter(endpoint, node string, drops prometheus.Counter, log *slog.Logger) *exporter {
	const path = "/v1/traces" // of the protocol; an endpoint may name it or not
	e := &exporter{
		url: strings.TrimSuffix(strings.TrimSuffix(endpoint, "/"), path) + path, drops: drops, log: log,
		client: &http.Client{
			Timeout:       exportTimeout,
			Transport:     &http.Transport{MaxIdleConns: 1, IdleConnTimeout: time.Minute},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	e.head = append(e.head, `{"resourceSpans":[{"resource":{"attributes":[`...)
	e.head = append(appendAttribute(e.head, "service.name", "starling", maxLoggedName), ',')
	e.head = appendAttribute(e.head, "service.instance.id", node, maxLoggedName)
	e.head = append(e.head, `]},"scopeSpans":[{"scope":{"name":"github.com/starling-lb/starling/proxy"},"spans":[`...)
	e.tail = []byte(`]}]}]}`)
	return e
}

// Close implements io.Closer; no Write runs.
func (e *exporter) Close() error {
	e.cancel()
	e.client.CloseIdleConnections()
	return nil
}

// Write posts a batch of spans, each with a comma and a line feed behind it. It
// takes all or nothing.
func (e *exporter) Write(batch []byte) (int, error) {
	e.body = append(append(e.body[:0], e.head...), bytes.TrimSuffix(batch, []byte(",\n"))...)
	e.body = append(e.body, e.tail...)
	err := e.deliver()
	if failing := err != nil; failing != e.failing {
		e.failing = failing
		if failing {
			e.log.Warn("spans are lost: the collector takes none", "endpoint", withoutUser(e.url), "err", err)
		} else {
			e.log.Info("the collector takes spans again", "endpoint", withoutUser(e.url))
		}
	}
	if err != nil {
		return 0, err
	}
	return len(batch), nil
}

// deliver posts the body until it is taken or refused, a few times.
func (e *exporter) deliver() error {
	for try := range exportTries {
		again, err := e.post()
		if err == nil || again < 0 || try == exportTries-1 {
			return err
		}
		if again == 0 {
			again = time.Duration((0.5 + rand.Float64()) * float64(exportBackoff<<try))
		}
		select {
		case <-e.ctx.Done():
			return err
		case <-time.After(again):
		}
	}
	panic("BUG: no try was the last")
}

// post tells when to try again after a failure: later, 0 for whenever, or never
// where it is negative.
func (e *exporter) post() (again time.Duration, err error) {
	req, err := http.NewRequestWithContext(e.ctx, http.MethodPost, e.url, bytes.NewReader(e.body))
	if err != nil {
		return -1, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := e.client.Do(req)
	var named *url.Error
	if errors.As(err, &named) {
		err = named.Err // it names the address, and who we are there
	}
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	switch {
	case resp.StatusCode/100 == 2:
		e.drops.Add(rejected(answer)) // with an answer that broke off, none is known to be
		return 0, nil
	case resp.StatusCode == 429, resp.StatusCode >= 502 && resp.StatusCode <= 504: // what the protocol calls retryable
		seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
		again = min(max(time.Duration(seconds)*time.Second, 0), exportPatience)
	default:
		again = -1
	}
	return again, fmt.Errorf("collector answered %s", resp.Status)
}
