// Command bench measures what a request or an event costs starling, beside
// nginx and HAProxy in the same run. docs/performance.md says how to read it.
//
// It promises that peers are set up to do their best, that every answer was
// checked, and that it leaves no process and no file behind. It must not know
// anything about starling but its command line and its configuration file.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"
)

type options struct {
	rounds   int
	quick    bool
	cases    string
	check    bool
	json     string
	starling string
	streams  int
	install  bool
}

func main() {
	// Children are killed when the thread that started them ends, and this
	// one lasts; it is also the generator's thread.
	runtime.LockOSThread()
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

func run(args []string, out, log io.Writer) int {
	o, chosen, err := parse(args, log)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintln(log, "bench:", err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, o.bound())
	defer cancel()
	report, err := measure(ctx, o, chosen, log)
	if report != nil {
		err = errors.Join(err, publish(report, o, out))
	}
	switch {
	case err != nil:
		fmt.Fprintln(log, "bench:", err)
		return 1
	case o.check && !report.met():
		return 1
	}
	return 0
}

// bound is the longest that a run may take, by its rounds.
func (o options) bound() time.Duration {
	if o.quick {
		return time.Duration(max(o.rounds, 2)) * time.Minute
	}
	return time.Duration(max(o.rounds, 5)) * 180 * time.Second // 5 rounds: 15 minutes
}

func parse(args []string, log io.Writer) (o options, chosen []benchCase, err error) {
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(log)
	f.IntVar(&o.rounds, "rounds", 5, "rounds, of which the median counts")
	f.BoolVar(&o.quick, "quick", false, "2 short rounds: shows that it works, not how fast it is")
	f.StringVar(&o.cases, "case", "all", "cases to run, with commas: "+strings.Join(caseNames(), ","))
	f.BoolVar(&o.check, "check", false, "exit with 1 unless every must is met")
	f.StringVar(&o.json, "json", "", "also write everything to this `FILE`")
	f.StringVar(&o.starling, "starling", "./bin/starling", "the binary to measure")
	f.IntVar(&o.streams, "streams", 4000, "idle streams of the memory case, 100 to 9000")
	f.BoolVar(&o.install, "install", true, "install nginx and haproxy with apt-get if they are missing and this is root")
	if err := f.Parse(args); err != nil {
		return o, nil, err
	}
	set := map[string]bool{}
	f.Visit(func(f *flag.Flag) { set[f.Name] = true })
	if o.quick {
		if !set["rounds"] {
			o.rounds = 2
		}
		if !set["streams"] {
			o.streams = 1000
		}
	}
	switch {
	case f.NArg() > 0:
		return o, nil, fmt.Errorf("argument %q: there are only flags, see -h", f.Arg(0))
	case o.rounds < 1 || o.rounds > 50:
		return o, nil, fmt.Errorf("-rounds %d is not within 1..50", o.rounds)
	case o.streams < 100 || o.streams > 9000:
		return o, nil, fmt.Errorf("-streams %d is not within 100..9000", o.streams)
	}
	chosen, err = chooseCases(o.cases)
	return o, chosen, err
}

func chooseCases(list string) ([]benchCase, error) {
	if list == "all" {
		return allCases(), nil
	}
	wanted := strings.Split(list, ",")
	for _, name := range wanted {
		if !slices.Contains(caseNames(), name) {
			return nil, fmt.Errorf("-case %s: is none of %s", name, strings.Join(caseNames(), ", "))
		}
	}
	return slices.DeleteFunc(allCases(), func(c benchCase) bool { return !slices.Contains(wanted, c.name) }), nil
}

// measure runs all rounds. Whatever happens, its children and files are gone
// when it returns; the report of a run that was cut short says so.
func measure(ctx context.Context, o options, chosen []benchCase, log io.Writer) (*report, error) {
	proxyCPU, loadCPU, err := pin()
	if err != nil {
		return nil, err
	}
	runtime.GOMAXPROCS(4) // said aloud, since Go would take 1 from the pinning and park one loop behind the other
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(2 << 30) // collected between measurements, and only in need while one runs
	dir, err := os.MkdirTemp("", "starling-bench-")
	if err != nil {
		return nil, fmt.Errorf("make a directory for the peers' files: %w", err)
	}
	defer os.RemoveAll(dir)
	b := &bench{options: o, dir: dir, proxyCPU: proxyCPU, loadCPU: loadCPU, log: log}
	if b.trust, err = certify(dir); err != nil {
		return nil, err
	}
	b.find(ctx)
	if len(b.targets) == 0 {
		return nil, errors.New("nothing to measure: build starling (make build) or install nginx or haproxy")
	}
	r := newReport(conditions(b), b.names(), chosen)
	others := watchOthers()
	err = b.rounds(ctx, chosen, r)
	r.Conditions = append(r.Conditions, others())
	if err != nil {
		r.Conditions = append(r.Conditions, "CUT SHORT: "+err.Error())
	}
	return r, err
}

func publish(r *report, o options, out io.Writer) error {
	if _, err := io.WriteString(out, r.text()); err != nil {
		return fmt.Errorf("print the report: %w", err)
	}
	if o.json == "" {
		return nil
	}
	p, err := r.json()
	if err == nil {
		err = os.WriteFile(o.json, p, 0o644)
	}
	if err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}
