package main

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/starling-lb/starling/testcluster/bench/load"
)

// trial is one case against one target.
type trial struct {
	bench   *bench
	clock   load.Clock
	backend *load.Backend
	at      netip.AddrPort
	proxy   *process // nil: direct
	meters  []meter
	err     error // of reading the meters
}

// meter is what a proxy's clocks show at one moment.
type meter struct {
	at          time.Time
	cpu, waited time.Duration
}

// rounds interleaves the targets: A B C, A B C, so that what changes on the
// machine meanwhile meets all of them.
func (b *bench) rounds(ctx context.Context, cases []benchCase, r *report) error {
	for _, c := range cases {
		for round := range b.options.rounds {
			for _, t := range b.order(c) {
				v, err := b.once(ctx, c, t)
				if ctx.Err() != nil {
					return ctx.Err()
				}
				r.add(c.name, t.name, v, err)
				b.progress(c, t, round, err)
			}
		}
	}
	return nil
}

func (b *bench) order(c benchCase) []target {
	if !c.direct {
		return b.targets
	}
	return append([]target{{name: direct}}, b.targets...)
}

// once measures with a fresh proxy and a fresh backend.
func (b *bench) once(ctx context.Context, c benchCase, t target) (v values, err error) {
	runtime.GC()
	clock := load.NewClock()
	try := trial{bench: b, clock: clock, backend: load.NewBackend(clock)}
	if try.at, err = try.backend.Start(); err != nil {
		return nil, err
	}
	defer func() {
		if stopErr := try.backend.Stop(); stopErr != nil {
			v, err = nil, stopErr
		}
	}()
	if t.name != direct {
		try.proxy, err = t.boot(ctx, t.path, order{try.at, c.secure})
		if try.proxy != nil {
			defer try.proxy.stop()
		}
		if err != nil {
			return nil, err
		}
		try.at = try.proxy.at
	}
	return c.run(&try, ctx)
}

func (b *bench) progress(c benchCase, t target, round int, err error) {
	outcome := "ok"
	if err != nil {
		outcome = err.Error()
	}
	fmt.Fprintf(b.log, "%s round %d/%d %s: %s\n", c.name, round+1, b.options.rounds, t.name, outcome)
}

// conditions are what somebody needs to know to repeat the run or to doubt it.
func conditions(b *bench) []string {
	priority := "allowed"
	if undo, ok := realTime(); ok {
		undo()
	} else {
		priority = "NOT allowed: delays of the sse case are worse than they are"
	}
	_, idle := b.times(0, idleFor)
	lines := []string{
		"date:      " + time.Now().UTC().Format(time.RFC3339),
		"command:   " + strings.Join(os.Args, " "),
		fmt.Sprintf("machine:   %s, %d CPUs, Linux %s, %s", cpuModel(), runtime.NumCPU(), kernel(), runtime.Version()),
		fmt.Sprintf("pinning:   proxy on CPU %d with one thread, generator and backend on CPU %d", b.proxyCPU, b.loadCPU),
		"real time: " + priority,
		fmt.Sprintf("idle:      %d streams, memory read %v after the last one was answered", b.streams, idle),
		fmt.Sprintf("rounds:    %d, interleaved, medians; a fresh process each", b.options.rounds),
	}
	for _, t := range b.targets {
		lines = append(lines, fmt.Sprintf("%-10s %s", t.name+":", t.version))
	}
	for _, name := range b.missing {
		lines = append(lines, fmt.Sprintf("%-10s not here", name+":"))
	}
	return lines
}

// watchOthers tells in the end how much CPU time went to processes that are
// not part of the run. They share caches and cores with the proxies, which
// costs the proxies CPU time as well.
func watchOthers() (line func() string) {
	began, before := time.Now(), othersCPU()
	return func() string {
		share := (othersCPU() - before).Seconds() / time.Since(began).Seconds() / float64(runtime.NumCPU())
		return fmt.Sprintf("others:    %.0f %% of the machine's CPU time went to other processes during the run", 100*max(0, share))
	}
}

// othersCPU is what all CPUs have worked less what this process and its ended
// children have.
func othersCPU() time.Duration {
	const tick = 10 * time.Millisecond // of /proc/stat, on every Linux
	text, _ := os.ReadFile("/proc/stat")
	total, _, _ := strings.Cut(string(text), "\n")
	var busy time.Duration
	for i, word := range strings.Fields(total) {
		ticks, err := strconv.Atoi(word)
		if idle := i == 4 || i == 5; err == nil && !idle && i <= 8 {
			busy += time.Duration(ticks) * tick
		}
	}
	for _, who := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
		var u unix.Rusage
		if unix.Getrusage(who, &u) == nil {
			busy -= time.Duration(u.Utime.Nano() + u.Stime.Nano())
		}
	}
	return busy
}

func cpuModel() string {
	text, _ := os.ReadFile("/proc/cpuinfo")
	for l := range bytes.Lines(text) {
		if name, value, _ := strings.Cut(string(l), ":"); strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

func kernel() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "of unknown release"
	}
	return unix.ByteSliceToString(u.Release[:])
}
