package shards

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"
)

// keys returns n of them, as even as hashes.
func keys(n int) []Key {
	r := rand.NewChaCha8([32]byte{1})
	all := make([]Key, n)
	for i := range all {
		binary.BigEndian.PutUint64(all[i][:8], r.Uint64())
		binary.BigEndian.PutUint64(all[i][8:], r.Uint64())
	}
	return all
}

// heapBytes is what lives on the heap.
func heapBytes() int64 {
	runtime.GC()
	runtime.GC() // what the first one's finalizers held
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

type memory struct {
	what string
	most int // bytes a session
	fill func(all []Key) any
}

func memories() []memory {
	return []memory{
		{"replica's table", 100, func(all []Key) any {
			m := NewMachine()
			for i, k := range all {
				m.table.Apply(1, Command{Op: OpBind, Session: k, Backend: backendName(i)})
			}
			return m
		}},
		{"leader's uses", 48, func(all []Key) any {
			u := new(Uses)
			for i, k := range all {
				u.Touch(k, time.Duration(i)*time.Millisecond)
			}
			return u
		}},
		{"node's cache", 64, func(all []Key) any {
			c := NewCache(2 * len(all))
			for i, k := range all {
				c.Put(k, Binding{backendName(i), 1}, 1, time.Duration(i)*time.Millisecond)
			}
			return c
		}},
	}
}

func backendName(i int) string { return fmt.Sprint("backend-", i%64) }

// TestMemoryPerSession holds at every number of sessions, right after a block grew,
// too.
func TestMemoryPerSession(t *testing.T) {
	for _, m := range memories() {
		worst := 0.0
		for _, n := range []int{40_000, 45_000, 50_000, 55_000, 60_000} { // a block grows by half: one of these is near the worst
			all := keys(n)
			before := heapBytes()
			kept := m.fill(all)
			each := float64(heapBytes()-before) / float64(n)
			runtime.KeepAlive(kept)
			worst = max(worst, each)
		}
		if worst > float64(m.most) || worst < 24 {
			t.Errorf("%s: %.1f bytes a session, want at most %d", m.what, worst, m.most)
		}
		t.Logf("%s: %.1f bytes a session", m.what, worst)
	}
}

// BenchmarkMillion fills what a million sessions need, and says what they take and
// what a collection of garbage then costs.
func BenchmarkMillion(b *testing.B) {
	all := keys(1_000_000)
	for _, m := range memories() {
		b.Run(m.what, func(b *testing.B) {
			var kept any
			before := heapBytes()
			for b.Loop() {
				kept = nil
				kept = m.fill(all)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(all)), "ns/session")
			b.ReportMetric(float64(heapBytes()-before)/float64(len(all)), "B/session")
			began := time.Now()
			runtime.GC()
			b.ReportMetric(float64(time.Since(began).Microseconds())/1000, "ms/gc")
			runtime.KeepAlive(kept)
		})
	}
}

// BenchmarkSnapshot is what one costs: commands wait for the copy alone.
func BenchmarkSnapshot(b *testing.B) {
	for _, n := range []int{60_000, 1_000_000} { // a million over 16 shards, and in one
		m := NewMachine()
		for i, k := range keys(n) {
			m.table.Apply(1, Command{Op: OpBind, Session: k, Backend: backendName(i)})
		}
		b.Run(fmt.Sprint("copy-", n), func(b *testing.B) {
			for b.Loop() {
				if _, err := m.Snapshot(); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprint("whole-", n), func(b *testing.B) {
			size := int64(0)
			for b.Loop() {
				w, err := m.Snapshot()
				if err == nil {
					size, err = w.WriteTo(io.Discard)
				}
				if err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(size)/1e6, "MB")
		})
		b.Run(fmt.Sprint("restore-", n), func(b *testing.B) {
			var saved bytes.Buffer
			if _, err := m.table.WriteTo(&saved); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if err := NewMachine().Restore(bytes.NewReader(saved.Bytes())); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
