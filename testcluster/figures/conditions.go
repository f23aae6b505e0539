package main

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// conditions are what the figures depend on and are not about.
type conditions struct {
	began  time.Time
	busy   time.Duration   // of other processes until then
	synced []time.Duration // sorted
}

const syncs = 200 // of 4 KiB, one after the other

// look notes how the machine is. The file is written to and removed.
func look(file string) (*conditions, error) {
	f, err := os.Create(file)
	if err != nil {
		return nil, fmt.Errorf("the disk to measure with: %w", err)
	}
	defer func() { _ = f.Close(); _ = os.Remove(file) }() // it has served
	c := &conditions{began: time.Now(), busy: othersCPU()}
	block := make([]byte, 4096)
	for range syncs {
		began := time.Now()
		if _, err = f.Write(block); err == nil {
			err = f.Sync()
		}
		if err != nil {
			return nil, fmt.Errorf("the disk to measure with: %w", err)
		}
		c.synced = append(c.synced, time.Since(began))
	}
	slices.Sort(c.synced)
	return c, nil
}

// lines are to be called when all is measured.
func (c *conditions) lines(args []string) []string {
	load, _, _ := strings.Cut(text("/proc/loadavg"), " ")
	others := "unknown"
	if cpus := float64(runtime.NumCPU()); load != "" {
		others = fmt.Sprintf("%.0f %%", 100*max(0, (othersCPU()-c.busy).Seconds())/time.Since(c.began).Seconds()/cpus)
	}
	return []string{
		"date:     " + c.began.UTC().Format(time.RFC3339),
		"command:  figures " + strings.Join(args, " "),
		fmt.Sprintf("machine:  %s, %d CPUs, %s %s, %s", processor(), runtime.NumCPU(), runtime.GOOS, strings.TrimSpace(text("/proc/sys/kernel/osrelease")), runtime.Version()),
		fmt.Sprintf("disk:     4 KiB written and synced: p50 %s ms, p99 %s ms", number(ms(at(c.synced, 50))), number(ms(at(c.synced, 99)))),
		fmt.Sprintf("load:     average %s at the end; %s of the machine's CPU time went to other processes meanwhile", load, others),
	}
}

// at is a percentile of what is sorted.
func at(sorted []time.Duration, percent int) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, len(sorted)*percent/100)]
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// text is a file of Linux's; elsewhere there is none.
func text(file string) string {
	b, _ := os.ReadFile(file)
	return string(b)
}

func processor() string {
	for l := range bytes.Lines([]byte(text("/proc/cpuinfo"))) {
		if name, value, _ := strings.Cut(string(l), ":"); strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

// tick is the unit of CPU time in /proc, on every Linux.
const tick = 10 * time.Millisecond

// othersCPU is what all CPUs have worked less what this process has.
func othersCPU() (busy time.Duration) {
	total, _, _ := strings.Cut(text("/proc/stat"), "\n")
	for i, word := range strings.Fields(total) {
		if idle := i == 4 || i == 5; !idle && i <= 8 {
			busy += ticks(word)
		}
	}
	return busy - ownCPU()
}

// ownCPU is what this process has, threadCPU this thread; 0 where nobody says.
func ownCPU() time.Duration    { return cpuIn("/proc/self/stat") }
func threadCPU() time.Duration { return cpuIn("/proc/thread-self/stat") }

func cpuIn(file string) time.Duration {
	_, own, _ := strings.Cut(text(file), ") ") // the name before may have blanks
	if f := strings.Fields(own); len(f) > 12 {
		return ticks(f[11]) + ticks(f[12])
	}
	return 0
}

func ticks(word string) time.Duration {
	n, err := strconv.Atoi(word)
	if err != nil {
		return 0
	}
	return time.Duration(n) * tick
}
