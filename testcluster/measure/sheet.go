package measure

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"sync"
	"text/tabwriter"
	"time"
)

// Report is what clients saw. Times are in seconds, and count from when a request
// was due.
type Report struct {
	Seconds float64          `json:"seconds"`
	Due     int64            `json:"due"`      // requests
	Done    int64            `json:"done"`     // answered whole
	NotSent int64            `json:"not_sent"` // too many were open
	Failed  map[string]int64 `json:"failed"`   // by how
	Events  int64            `json:"events"`   // of event streams
	Bytes   int64            `json:"bytes"`    // of answers' bodies

	Late  Times `json:"late"`  // from when it was due until it was sent: the generator's own fault
	Head  Times `json:"head"`  // to the head of the answer, whatever it said
	First Times `json:"first"` // to the first event
	Gap   Times `json:"gap"`   // between two events of a stream
	Whole Times `json:"whole"` // to the end of an answer that was whole
}

// Times are quantiles; each is right within 2 %, but for Max, which is exact.
type Times struct {
	N    int64   `json:"n"`
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p999"`
	Max  float64 `json:"max"`
}

// sheet is where requests write what they saw.
type sheet struct {
	mu                              sync.Mutex
	open                            int
	r                               Report
	lates, heads, firsts, gaps, all histogram
}

func (s *sheet) begin() { s.r.Failed = map[string]int64{} }

// enter takes a request that is sent so late; false: there is no room.
func (s *sheet) enter(most int, late time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.r.Due++
	if s.open >= most {
		s.r.NotSent++
		return false
	}
	s.open++
	s.lates.add(late)
	return true
}

func (s *sheet) leave(kind string, took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open--
	if kind != "" {
		s.r.Failed[kind]++
		return
	}
	s.r.Done++
	s.all.add(took)
}

func (s *sheet) head(took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heads.add(took)
}

func (s *sheet) first(took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.r.Events++
	s.firsts.add(took)
}

func (s *sheet) gap(took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.r.Events++
	s.gaps.add(took)
}

func (s *sheet) bytes(n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.r.Bytes += n
}

func (s *sheet) report(took time.Duration) Report {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.r
	r.Seconds = took.Seconds()
	r.Late, r.Head, r.First, r.Gap, r.Whole = s.lates.times(), s.heads.times(), s.firsts.times(), s.gaps.times(), s.all.times()
	return r
}

// Print writes the report for people.
func (r Report) Print(out io.Writer) error {
	fmt.Fprintf(out, "%d requests due in %.1f s, %.1f per second: %d done", r.Due, r.Seconds, float64(r.Due)/max(r.Seconds, 1e-9), r.Done)
	for _, kind := range slices.Sorted(maps.Keys(r.Failed)) {
		fmt.Fprintf(out, ", %d %s", r.Failed[kind], kind)
	}
	if r.NotSent > 0 {
		fmt.Fprintf(out, ", %d not sent, for too many were open", r.NotSent)
	}
	fmt.Fprintf(out, "\n%d events, %.1f MB\n\n", r.Events, float64(r.Bytes)/1e6)
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "ms, from when it was due\tp50\tp90\tp99\tp99.9\tmax\tof\t")
	for _, row := range []struct {
		name string
		t    Times
	}{{"head of the answer", r.Head}, {"first event", r.First}, {"between events", r.Gap}, {"whole answer", r.Whole}, {"sent late by", r.Late}} {
		if row.t.N > 0 {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%d\t\n", row.name, ms(row.t.P50), ms(row.t.P90), ms(row.t.P99), ms(row.t.P999), ms(row.t.Max), row.t.N)
		}
	}
	return w.Flush()
}

func ms(seconds float64) string {
	if seconds < 0.1 {
		return fmt.Sprintf("%.2f", 1000*seconds)
	}
	return fmt.Sprintf("%.0f", 1000*seconds)
}

// A histogram counts durations in buckets that grow, and is as large however many
// there are.
const (
	finest  = 10 * time.Microsecond // what is quicker counts as this
	growth  = 1.02
	buckets = 1000 // up to an hour
)

type histogram struct {
	count [buckets]int64
	total int64
	max   time.Duration
}

func (h *histogram) add(d time.Duration) {
	i := 0
	if d > finest {
		i = min(buckets-1, int(math.Log(float64(d)/float64(finest))/math.Log(growth)))
	}
	h.count[i]++
	h.total++
	h.max = max(h.max, d)
}

func (h *histogram) times() Times {
	return Times{N: h.total, P50: h.at(0.5), P90: h.at(0.9), P99: h.at(0.99), P999: h.at(0.999), Max: h.max.Seconds()}
}

// at is the upper edge of the bucket that holds quantile q, or the maximum.
func (h *histogram) at(q float64) float64 {
	rank := int64(math.Ceil(q * float64(h.total)))
	for i, n := range h.count {
		if rank -= n; rank <= 0 && h.total > 0 {
			return min(h.max.Seconds(), finest.Seconds()*math.Pow(growth, float64(i+1)))
		}
	}
	return 0
}
