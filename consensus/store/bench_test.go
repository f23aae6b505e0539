package store

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// device is one disk with slow fsyncs. A transaction of bbolt takes two: its
// pages, then the page that makes them count.
type device struct {
	mu    *sync.Mutex // nil: files do not wait for one another
	flush time.Duration
}

type onDevice struct {
	Disk
	dev device
}

func (d onDevice) sync() {
	for range 2 {
		if d.dev.mu != nil {
			d.dev.mu.Lock()
		}
		<-time.After(d.dev.flush)
		if d.dev.mu != nil {
			d.dev.mu.Unlock()
		}
	}
}

func (d onDevice) StoreLogs(es []*raft.Log) error {
	defer d.sync()
	return d.Disk.StoreLogs(es)
}

func (d onDevice) DeleteRange(min, max uint64) error {
	defer d.sync()
	return d.Disk.DeleteRange(min, max)
}

// command is one caller's wait.
type command struct{ done chan struct{} }

// lead takes commands as raft's leader does: all that have come while the disk
// was busy become one append.
func lead(b *testing.B, log raft.LogStore, in <-chan command) {
	next := uint64(1)
	data := make([]byte, 128)
	for first := range in {
		batch := []command{first}
		for len(batch) < 64 {
			select {
			case c, ok := <-in:
				if ok {
					batch = append(batch, c)
					continue
				}
			default:
			}
			break
		}
		es := make([]*raft.Log, len(batch))
		for i := range es {
			es[i] = &raft.Log{Index: next + uint64(i), Term: 1, Data: data}
		}
		if err := log.StoreLogs(es); err != nil {
			b.Error(err)
		}
		next += uint64(len(es))
		for _, c := range batch {
			close(c.done)
		}
	}
}

const (
	benchShards  = 64
	benchCallers = 256
	benchFor     = time.Second
)

// drive lets the callers call for benchFor and gives back how long each waited.
func drive(b *testing.B, logs []raft.LogStore) (waits []time.Duration) {
	var leaders, callers sync.WaitGroup
	var mu sync.Mutex
	ins := make([]chan command, len(logs))
	for i := range logs {
		ins[i] = make(chan command, benchCallers)
		leaders.Go(func() { lead(b, logs[i], ins[i]) })
	}
	ctx, cancel := context.WithTimeout(b.Context(), benchFor)
	defer cancel()
	for i := range benchCallers {
		callers.Go(func() {
			var own []time.Duration
			for ctx.Err() == nil {
				c, begin := command{make(chan struct{})}, time.Now()
				ins[i%len(ins)] <- c
				<-c.done
				own = append(own, time.Since(begin))
			}
			mu.Lock()
			defer mu.Unlock()
			waits = append(waits, own...)
		})
	}
	callers.Wait()
	for _, in := range ins {
		close(in)
	}
	leaders.Wait()
	slices.Sort(waits)
	return waits
}

func shared(b *testing.B, dir string, dev device) (logs []raft.LogStore) {
	st := begin(b, Options{Path: filepath.Join(dir, "shared.db"), Wrap: func(d Disk) Disk { return onDevice{d, dev} }})
	for i := range uint64(benchShards) {
		logs = append(logs, open(b, st, key(i)))
	}
	return logs
}

// perGroup is what raft-boltdb is made for: a file per group.
func perGroup(b *testing.B, dir string, dev device) (logs []raft.LogStore) {
	for i := range benchShards {
		bolt, err := openFile(filepath.Join(dir, fmt.Sprintf("%d.db", i)), nil)
		must(b, err)
		b.Cleanup(func() { must(b, bolt.Close()) })
		logs = append(logs, groupFile{bolt, onDevice{bolt, dev}})
	}
	return logs
}

type groupFile struct {
	raft.LogStore
	slow onDevice
}

func (g groupFile) StoreLogs(es []*raft.Log) error { return g.slow.StoreLogs(es) }

// BenchmarkOneFile prints one file for all groups beside a file per group, in
// turns of one second: appends per second and how long one takes, of 256
// callers of 64 groups, on a disk whose fsync takes 1 ms. One disk does one
// fsync at a time; the second pair of rows grants each file a disk of its own.
func BenchmarkOneFile(b *testing.B) {
	const rounds = 3
	for range b.N {
		for _, disks := range []string{"one disk", "a disk per file"} {
			var got [2]outcome
			for range rounds {
				for i, build := range []func(*testing.B, string, device) []raft.LogStore{shared, perGroup} {
					dir := ramDir(b) // so that only the simulated fsync counts
					dev := device{flush: time.Millisecond}
					if disks == "one disk" {
						dev.mu = &sync.Mutex{}
					}
					got[i].add(drive(b, build(b, dir, dev)), rounds)
				}
			}
			b.Logf("%-15s  one file        %s", disks, got[0])
			b.Logf("%-15s  file per group  %s", disks, got[1])
			b.Logf("%-15s  one file does %.1f x the appends at %.2f x the p50", disks, got[0].rate/got[1].rate, got[0].p50/got[1].p50)
		}
	}
	began := time.Now()
	for range 20 {
		onDevice{dev: device{flush: time.Millisecond}}.sync()
	}
	b.Logf("%d shards, %d callers, 128 bytes, 2 x 1 ms (here with the timer: %s in all) per transaction, %d processors, %s",
		benchShards, benchCallers, (time.Since(began) / 20).Round(10*time.Microsecond), runtime.GOMAXPROCS(0), runtime.Version())
}

// outcome is the mean of some rounds.
type outcome struct{ rate, p50, p99 float64 }

func (o *outcome) add(waits []time.Duration, rounds float64) {
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	o.rate += float64(len(waits)) / benchFor.Seconds() / rounds
	o.p50 += ms(waits[len(waits)/2]) / rounds
	o.p99 += ms(waits[len(waits)*99/100]) / rounds
}

func (o outcome) String() string {
	return fmt.Sprintf("%7.0f/s  p50 %6.2f ms  p99 %6.2f ms", o.rate, o.p50, o.p99)
}
