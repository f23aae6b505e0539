package consensus

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"golang.org/x/sys/unix"

	"github.com/starling-lb/starling/consensus/store"
)

// The figures that the room promises, on three nodes in one process with the
// real store: go test ./consensus -run '^$' -bench . -benchtime 1x

// slowDisk adds to each transaction what a disk's fsyncs take, of which bbolt
// needs two.
type slowDisk struct {
	store.Disk
	sync time.Duration
}

func (d slowDisk) StoreLogs(l []*raft.Log) error {
	<-time.After(2 * d.sync)
	return d.Disk.StoreLogs(l)
}

// fileDir is where a store's file is: in memory, where there is such a place, if
// its fsyncs are simulated.
func fileDir(b *testing.B, fsync time.Duration) string {
	if fsync > 0 {
		if dir, err := os.MkdirTemp("/dev/shm", "starling-"); err == nil {
			b.Cleanup(func() { _ = os.RemoveAll(dir) })
			return dir
		}
	}
	return b.TempDir()
}

// onFile has a town's nodes keep their logs in files.
func onFile(b *testing.B, w *town, fsync time.Duration) {
	for _, name := range w.names() {
		n := w.nodes[name]
		s, err := store.New(store.Options{Path: filepath.Join(fileDir(b, fsync), "raft.db"), Wrap: func(d store.Disk) store.Disk {
			if fsync == 0 {
				return d
			}
			return slowDisk{d, fsync}
		}})
		if err == nil {
			err = s.Start(b.Context())
		}
		if err != nil {
			b.Fatal(err)
		}
		n.groups.o.Store = OnDisk(s)
		n.close = func() {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			_ = s.Stop(ctx)
		}
	}
}

// settled starts shards on three nodes and returns how long leaders took.
func settled(b *testing.B, shards int, fsync time.Duration) (*town, time.Duration) {
	w := newTown(b, 3, withTimes(func(string) Timing { return DefaultTiming() }))
	onFile(b, w, fsync)
	began := time.Now()
	var all sync.WaitGroup
	for _, name := range three() {
		all.Go(func() {
			for s := range shards {
				w.nodes[name].open(uint32(s+1), three())
			}
		})
	}
	all.Wait()
	for s := range shards {
		w.leader(uint32(s + 1))
	}
	return w, time.Since(began)
}

func cpu() time.Duration {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func resident() (kib int) {
	b, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(b)) {
		if n, err := fmt.Sscanf(line, "VmRSS: %d kB", &kib); n == 1 && err == nil {
			return kib
		}
	}
	return 0
}

func BenchmarkIdle(b *testing.B) {
	const shards, span = 64, 20 * time.Second
	before := resident()
	_, cold := settled(b, shards, 0)
	stays(5*time.Second, func() bool { return true })
	for b.Loop() {
		began, at := cpu(), time.Now()
		stays(span, func() bool { return true })
		b.ReportMetric(100*float64(cpu()-began)/float64(time.Since(at)), "%core")
		b.ReportMetric(float64(resident()-before)/1024/(3*shards), "MiB/replica")
		b.ReportMetric(cold.Seconds(), "s-cold")
	}
}

// BenchmarkFailover kills the node that leads most of 64 shards.
func BenchmarkFailover(b *testing.B) {
	for _, hinted := range []bool{true, false} {
		b.Run(fmt.Sprint("hinted=", hinted), func(b *testing.B) {
			const shards = 64
			for b.Loop() {
				w, _ := settled(b, shards, 0)
				led := make(map[string][]uint32)
				for s := range uint32(shards) {
					n := w.leader(s + 1)
					n.groups.Group(s + 1).noCures.hint.Store(!hinted)
					led[n.name] = append(led[n.name], s+1)
				}
				for _, name := range three() {
					for _, g := range w.nodes[name].groups.All() {
						g.noCures.hint.Store(!hinted)
					}
				}
				most := slices.MaxFunc(three(), func(x, y string) int { return len(led[x]) - len(led[y]) })
				began := time.Now()
				var dying sync.WaitGroup
				dying.Go(w.nodes[most].kill)
				var times []time.Duration
				for left := slices.Clone(led[most]); len(left) > 0; {
					left = slices.DeleteFunc(left, func(s uint32) bool {
						open := slices.ContainsFunc(others(most), func(n string) bool { return w.nodes[n].groups.Group(s).State().Open })
						if open {
							times = append(times, time.Since(began))
						}
						return open
					})
					stays(2*time.Millisecond, func() bool { return true })
				}
				dying.Wait()
				b.ReportMetric(float64(len(times)), "shards")
				b.ReportMetric(times[len(times)/2].Seconds(), "s-p50")
				b.ReportMetric(times[len(times)*99/100].Seconds(), "s-p99")
				w.end()
			}
		})
	}
}

// BenchmarkPropose sends commands of 64 bytes from many callers through shards.
func BenchmarkPropose(b *testing.B) {
	for _, c := range []struct{ shards, callers int }{{16, 256}, {16, 4096}, {64, 256}} {
		b.Run(fmt.Sprintf("shards=%d/callers=%d", c.shards, c.callers), func(b *testing.B) {
			w, _ := settled(b, c.shards, time.Millisecond)
			const span = 5 * time.Second
			for b.Loop() {
				ctx, cancel := context.WithTimeout(b.Context(), span)
				var done, failed atomic.Int64
				var mu sync.Mutex
				var times []time.Duration
				var all sync.WaitGroup
				for i := range c.callers {
					shard := uint32(i%c.shards + 1)
					all.Go(func() {
						command := make([]byte, 64)
						var own []time.Duration
						for ctx.Err() == nil {
							g := w.leader(shard).groups.Group(shard)
							for ctx.Err() == nil {
								at := time.Now()
								if _, err := g.Propose(ctx, command); err != nil {
									failed.Add(1)
									break
								}
								own = append(own, time.Since(at))
								done.Add(1)
							}
						}
						mu.Lock()
						times = append(times, own...)
						mu.Unlock()
					})
				}
				all.Wait()
				cancel()
				slices.Sort(times)
				b.ReportMetric(float64(done.Load())/span.Seconds(), "commands/s")
				b.ReportMetric(float64(times[len(times)/2].Microseconds())/1000, "ms-p50")
				b.ReportMetric(float64(times[len(times)*99/100].Microseconds())/1000, "ms-p99")
			}
		})
	}
}
