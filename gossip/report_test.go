package gossip

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/starling-lb/starling/proxy/backend"
)

// chunkGen draws chunks of few nodes and backends, so that they collide.
func chunkGen(base time.Time) *rapid.Generator[chunk] {
	return rapid.Custom(func(t *rapid.T) chunk {
		c := chunk{
			origin: rapid.Uint64Range(1, 2).Draw(t, "origin"), boot: rapid.Uint64Range(1, 2).Draw(t, "boot"), seq: rapid.Uint64Range(1, 6).Draw(t, "seq"),
			full: rapid.Bool().Draw(t, "full"), received: base,
		}
		if c.full {
			c.first = byte(rapid.IntRange(0, 2).Draw(t, "first"))
			c.last = byte(rapid.IntRange(int(c.first), 2).Draw(t, "last"))
		}
		for b := range 3 {
			in := !c.full || b >= int(c.first) && b <= int(c.last)
			if in && rapid.Bool().Draw(t, "there") {
				// What a node says in one chunk is one thing: it follows from the version.
				n := int(c.origin*1000 + c.boot*100 + c.seq)
				c.entries = append(c.entries, entry{mark: uint64(b)<<32 | 7, inFlight: n, running: n, heard: -1})
			}
		}
		return c
	})
}

// state is what was merged, as far as it matters.
func (r *reports) state() map[string]string {
	out := map[string]string{}
	for mark, o := range r.origins {
		out[fmt.Sprint(mark)] = fmt.Sprint(o.boot, o.seq, o.floor[:3])
		for m, h := range o.entries {
			out[fmt.Sprint(mark, m)] = fmt.Sprint(h.seq, h.entry)
		}
	}
	return out
}

// oneVersionOnce leaves out chunks that contradict an earlier one: a node never
// says two things under one version.
func oneVersionOnce(in []chunk) []chunk {
	seen := map[[3]uint64]bool{}
	return slices.DeleteFunc(in, func(c chunk) bool {
		v := [3]uint64{c.origin, c.boot, c.seq}
		was := seen[v]
		seen[v] = true
		return was
	})
}

// TestMergeIsAJoin: the same chunks in any order, any of them any number of
// times, and in any grouping, give the same state.
func TestMergeIsAJoin(t *testing.T) {
	base := time.Now()
	rapid.Check(t, func(t *rapid.T) {
		chunks := oneVersionOnce(rapid.SliceOfN(chunkGen(base), 1, 10).Draw(t, "chunks"))
		straight, other := newReports(), newReports()
		for _, c := range chunks {
			straight.merge(c)
		}
		order := rapid.Permutation(append(slices.Clone(chunks), rapid.SliceOf(rapid.SampledFrom(chunks)).Draw(t, "again")...)).Draw(t, "order")
		for _, c := range order {
			other.merge(c)
		}
		if a, b := straight.state(), other.state(); !reflect.DeepEqual(a, b) {
			t.Fatalf("in order %v\nin another %v", a, b)
		}
		before := other.state()
		for _, c := range chunks { // idempotent as a whole
			if other.merge(c) {
				t.Fatalf("%+v was news twice", c)
			}
		}
		if !reflect.DeepEqual(before, other.state()) {
			t.Fatal("a second time changes the state")
		}
	})
}

// TestFullsCoverAll: whatever a node has to say, its full report brings any
// receiver to just that, in any order of the chunks.
func TestFullsCoverAll(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var want []entry
		for i := range rapid.IntRange(0, 1200).Draw(t, "backends") {
			e := entry{mark: markOf(fmt.Sprint("backend-", i)), inFlight: 1 + i%7, running: 1, heard: -1}
			if rapid.IntRange(0, 20).Draw(t, "watched") == 0 {
				e.looks = slices.Repeat([]look{{100, 2000, 2, true}}, backend.MaxLooks)
			}
			want = append(want, e)
		}
		seq := uint64(10)
		next := func(full bool) chunk { seq++; return chunk{origin: 1, boot: 1, seq: seq, full: full} }
		chunks := fulls(slices.Clone(want), next)
		if len(want) < 256 && !chunks[0].full {
			t.Fatal("no full chunk")
		}
		r := newReports()
		r.merge(chunk{origin: 1, boot: 1, seq: 1, entries: []entry{{mark: markOf("gone"), inFlight: 9, heard: -1}}})
		for _, c := range rapid.Permutation(chunks).Draw(t, "order") {
			body := c.encode()
			if len(body) > maxChunk {
				t.Fatalf("a chunk has %d bytes", len(body))
			}
			back, err := decodeChunk(body)
			if err != nil {
				t.Fatal(err)
			}
			r.merge(back)
		}
		if got := len(r.origins[1].entries); got != len(want) {
			t.Fatalf("%d entries, want %d", got, len(want))
		}
		for _, e := range want {
			if got := r.origins[1].entries[e.mark].entry; !reflect.DeepEqual(got, e) {
				t.Fatalf("%+v, want %+v", got, e)
			}
		}
	})
}

func TestFullOfOneCrowdedBucket(t *testing.T) {
	var entries []entry
	for i := range 400 {
		for _, bucket := range []uint64{0, 7, 255} {
			entries = append(entries, entry{mark: bucket<<32 | uint64(i), inFlight: 1, running: 1, heard: -1})
		}
	}
	seq := uint64(0)
	chunks := fulls(entries, func(full bool) chunk { seq++; return chunk{origin: 1, boot: 1, seq: seq, full: full} })
	r := newReports()
	for _, c := range chunks {
		if len(c.encode()) > maxChunk {
			t.Fatalf("a chunk has %d bytes", len(c.encode()))
		}
		r.merge(c)
	}
	if got := len(r.origins[1].entries); got != 1200 {
		t.Fatalf("%d entries, want 1200", got)
	}
}

func TestSums(t *testing.T) {
	now := time.Now()
	p := &peers{byMark: map[uint64]int{}}
	for i, id := range []string{"n1", "n2", "n3"} {
		p.byMark[markOf(id)] = i
		p.list = append(p.list, peer{id: id, mark: markOf(id), boot: 1})
	}
	ids := map[uint64]string{markOf("b1"): "b1", markOf("b2"): "b2"}
	r := newReports()
	last := &sums{}
	sum := func(at time.Time) *sums {
		last = r.sum(last, p, &ids, at)
		return last
	}
	say := func(node string, boot, seq uint64, ago time.Duration, e entry) {
		e.mark, e.heard = markOf("b1"), -1
		r.merge(chunk{origin: markOf(node), boot: boot, seq: seq, received: now.Add(-ago), entries: []entry{e}})
	}
	check := func(what string, want backend.Elsewhere) {
		t.Helper()
		if got := sum(now).elsewhere["b1"]; got != want {
			t.Errorf("%s: %+v, want %+v", what, got, want)
		}
	}
	check("nothing yet", backend.Elsewhere{Nodes: 3, Stale: true})
	say("n1", 1, 5, 0, entry{inFlight: 3, running: 2, phantoms: 6, speed: codeSpeed(50)})
	say("n2", 1, 9, time.Second, entry{inFlight: 4, running: 4, speed: codeSpeed(10)})
	check("two", backend.Elsewhere{Nodes: 3, InFlight: 7, Running: 6, Phantoms: 1.5, Speed: speedOf(codeSpeed(50))})
	say("n1", 1, 4, 0, entry{inFlight: 100})
	check("an old one again", backend.Elsewhere{Nodes: 3, InFlight: 7, Running: 6, Phantoms: 1.5, Speed: speedOf(codeSpeed(50))})
	say("n9", 1, 1, 0, entry{inFlight: 100})
	check("no member's", backend.Elsewhere{Nodes: 3, InFlight: 7, Running: 6, Phantoms: 1.5, Speed: speedOf(codeSpeed(50))})
	say("n2", 2, 1, 0, entry{inFlight: 1, running: 1})
	check("of a start that nobody knows of", backend.Elsewhere{Nodes: 3, InFlight: 3, Running: 2, Phantoms: 1.5, Speed: speedOf(codeSpeed(50)), Stale: true})
	say("n2", 2, 2, 0, entry{inFlight: 1, running: 1, wanting: true})
	p.list[1].boot = 2
	check("once known", backend.Elsewhere{Nodes: 3, InFlight: 4, Running: 3, Phantoms: 1.5, Speed: speedOf(codeSpeed(50)), Wanting: 1})
	if got := sum(now.Add(reportExpiry + time.Second)).elsewhere["b1"]; got != (backend.Elsewhere{Nodes: 3, Stale: true}) {
		t.Errorf("much later: %+v", got)
	}
	if len(r.origins) != 2 {
		t.Errorf("%d reports are kept, want those of the 2 members", len(r.origins))
	}
}

func TestSpeedCode(t *testing.T) {
	for _, s := range []float64{0.07, 1, 3.7, 50, 997, 1e6, 9e7} {
		if got := speedOf(codeSpeed(s)); math.Abs(got/s-1) > 0.05 {
			t.Errorf("%v becomes %v", s, got)
		}
	}
	for _, s := range []float64{0, -1, math.NaN(), math.Inf(-1)} {
		if codeSpeed(s) != 0 {
			t.Errorf("%v has code %d", s, codeSpeed(s))
		}
	}
	if codeSpeed(math.Inf(1)) != 255 || codeSpeed(1e300) != 255 || codeSpeed(1e-300) != 1 {
		t.Error("the ends are not kept")
	}
}

// TestChange: what is said at once, what goes along, and what is not worth it.
func TestChange(t *testing.T) {
	now := time.Now()
	look := func(ago time.Duration, f backend.Finding) backend.Look {
		return backend.Look{At: now.Add(-ago), Took: time.Millisecond, Finding: f}
	}
	before := backend.Report{ID: "b1", InFlight: 5, Running: 3, Phantoms: 1, Speed: 50, Looks: []backend.Look{look(5*time.Second, backend.LookOK)}, Heard: 1}
	said := spoken{entry: toEntry(before, now), at: now.Add(-time.Second), looked: before.Looks[0].At, heard: before.Heard}
	for _, tt := range []struct {
		name   string
		change func(*backend.Report)
		doubt  bool
		want   urgency
	}{
		{"nothing", func(*backend.Report) {}, false, calm},
		{"a stream more", func(r *backend.Report) { r.InFlight++ }, false, hard},
		{"a first byte", func(r *backend.Report) { r.Running++ }, false, soft},
		{"a little faster", func(r *backend.Report) { r.Speed = 54 }, false, calm},
		{"much faster", func(r *backend.Report) { r.Speed = 90 }, false, soft},
		{"drains", func(r *backend.Report) { r.Draining = true }, false, hard},
		{"streams wait for it", func(r *backend.Report) { r.Wanting = true }, false, hard},
		{"a failure fades", func(r *backend.Report) { r.Phantoms = 0.6 }, false, soft},
		{"a failure", func(r *backend.Report) { r.Phantoms = 2 }, false, hard},
		{"the last failure is over", func(r *backend.Report) { r.Phantoms = 0 }, false, hard},
		{"well again as before", func(r *backend.Report) { r.Looks = []backend.Look{look(time.Second, backend.LookOK), r.Looks[0]} }, false, calm},
		{"a look that failed", func(r *backend.Report) { r.Looks = []backend.Look{look(time.Second, backend.LookFail), r.Looks[0]} }, false, hard},
		{"slow", func(r *backend.Report) { r.Looks = []backend.Look{look(time.Second, backend.LookSlow), r.Looks[0]} }, false, hard},
		{"a byte", func(r *backend.Report) { r.Heard = 2 }, false, calm},
		{"a byte of one that is doubted", func(r *backend.Report) { r.Heard = 2 }, true, hard},
	} {
		r := before
		tt.change(&r)
		if got := said.change(r, toEntry(r, now), tt.doubt, now); got != tt.want {
			t.Errorf("%s: urgency %d, want %d", tt.name, got, tt.want)
		}
	}
}

func FuzzChunk(f *testing.F) {
	now := time.Now()
	r := backend.Report{ID: strings.Repeat("long", 30), InFlight: 7, Running: 2, Phantoms: 1.25, Speed: 33, Draining: true, Wanting: true, Heard: now.UnixNano()}
	for range backend.MaxLooks {
		r.Looks = append(r.Looks, backend.Look{At: now, Took: time.Second, Finding: backend.LookFail, TimedOut: true})
	}
	f.Add(chunk{origin: 1, boot: 2, seq: 3, entries: []entry{toEntry(r, now)}}.encode())
	f.Add(chunk{origin: 1, boot: 2, seq: 3, full: true, last: 255, entries: []entry{toEntry(r, now)}}.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := decodeChunk(b)
		if err != nil {
			return
		}
		if again, err := decodeChunk(c.encode()); err != nil || !reflect.DeepEqual(c, again) && len(c.encode()) <= maxPacket {
			t.Fatalf("%+v becomes %+v: %v", c, again, err)
		}
		r := newReports()
		r.merge(c)
		r.merge(c)
	})
}

func FuzzRecord(f *testing.F) {
	f.Add(marked{Record{LeaderHint, "7", 3, []byte("n1")}, clusterMark("c")}.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := decodeRecord(b)
		if err != nil {
			return
		}
		again, err := decodeRecord(r.encode())
		if err != nil || !reflect.DeepEqual(r, again) {
			t.Fatalf("%+v becomes %+v: %v", r, again, err)
		}
	})
}
