package report

import (
	"cmp"
	"slices"
	"time"

	"github.com/starling-lb/starling/testcluster/chaos/history"
)

const mostBuckets = 600 // on the picture

// figures are what the picture shows, bucket by bucket.
type figures struct {
	began   time.Time
	bucket  time.Duration
	whole   []float64 // turns that ended whole, per second
	broken  []float64
	refused []float64
	away    []float64 // nobody let them in
	p50     []float64 // seconds to the first byte, by when turns were due
	p99     []float64
	moves   []float64 // bindings that changed their backend, per second
}

func count(run *history.Run) *figures {
	length := max(lasted(run), time.Second)
	f := &figures{began: run.Began, bucket: max(time.Second, (length/mostBuckets).Truncate(time.Second)+time.Second)}
	if length <= mostBuckets*time.Second {
		f.bucket = time.Second
	}
	n := int(length/f.bucket) + 1
	for _, list := range []*[]float64{&f.whole, &f.broken, &f.refused, &f.away, &f.p50, &f.p99, &f.moves} {
		*list = make([]float64, n)
	}
	f.turns(run.Turns)
	f.moved(run)
	return f
}

// lasted is up to the last thing that is shown.
func lasted(run *history.Run) time.Duration {
	end := run.Ended
	for i := range run.Turns {
		if e := run.Turns[i].Ended; e.After(end) {
			end = e
		}
	}
	return end.Sub(run.Began)
}

// add counts something in its bucket, per second.
func (f *figures) add(list []float64, at time.Time) {
	if i := int(at.Sub(f.began) / f.bucket); i >= 0 && i < len(list) {
		list[i] += 1 / f.bucket.Seconds()
	}
}

func (f *figures) turns(turns []history.Turn) {
	waits := make([][]time.Duration, len(f.p50))
	for i := range turns {
		turn := &turns[i]
		switch {
		case turn.Whole:
			f.add(f.whole, turn.Ended)
		case turn.End == "broken":
			f.add(f.broken, turn.Ended)
		case turn.End == "refused":
			f.add(f.refused, turn.Ended)
		case turn.End == "unreachable":
			f.add(f.away, turn.Ended)
		}
		if i := int(turn.Due.Sub(f.began) / f.bucket); !turn.First.IsZero() && turn.Status < 300 && i >= 0 && i < len(waits) {
			waits[i] = append(waits[i], turn.First.Sub(turn.Due))
		}
	}
	for i, w := range waits {
		f.p50[i], f.p99[i] = quantile(w, 0.5).Seconds(), quantile(w, 0.99).Seconds()
	}
}

func quantile(all []time.Duration, q float64) time.Duration {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[min(len(all)-1, int(q*float64(len(all))))]
}

// moved counts the changes of bindings as turns met them.
func (f *figures) moved(run *history.Run) {
	sessions := map[string]string{}
	for i := range run.Turns {
		sessions[run.Turns[i].ID] = run.Turns[i].Session
	}
	lines := slices.Clone(run.Lines)
	slices.SortStableFunc(lines, func(a, b history.Line) int { return cmp.Compare(a.At.UnixNano(), b.At.UnixNano()) })
	type home struct {
		backend string
		epoch   uint64
	}
	at := map[string]home{}
	for _, l := range lines {
		session := sessions[l.RequestID]
		was := at[session]
		if session == "" || l.Epoch <= was.epoch {
			continue
		}
		if was.epoch > 0 && was.backend != l.Backend {
			f.add(f.moves, l.At)
		}
		at[session] = home{l.Backend, l.Epoch}
	}
}

// sum is of all turns, in words.
type sum struct {
	Turns, Whole, Broken, Refused, Away, Left int
	P50, P99                                  time.Duration
	Bytes                                     int64
}

func total(run *history.Run) (s sum) {
	var waits []time.Duration
	for i := range run.Turns {
		turn := &run.Turns[i]
		s.Turns++
		s.Bytes += turn.Bytes
		switch {
		case turn.Whole:
			s.Whole++
		case turn.End == "broken":
			s.Broken++
		case turn.End == "refused":
			s.Refused++
		case turn.End == "unreachable":
			s.Away++
		case turn.End == "left":
			s.Left++
		}
		if !turn.First.IsZero() && turn.Status < 300 {
			waits = append(waits, turn.First.Sub(turn.Due))
		}
	}
	s.P50, s.P99 = quantile(waits, 0.5), quantile(waits, 0.99)
	return s
}
