package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	switch os.Getenv("BENCH_TEST_AS") {
	case "":
		goleak.VerifyTestMain(m)
	case "starling": // a stand-in for it
		fmt.Println("some log line")
		fmt.Println("ready proxy=127.0.0.1:4711 admin=127.0.0.1:1")
		spin()
	case "broken":
		fmt.Fprintln(os.Stderr, "no such key: pools")
		os.Exit(2)
	}
}

func spin() {
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); {
	}
}

// testBench may start processes: its goroutine keeps its thread, which pinning
// would spoil for others.
func testBench(t *testing.T) *bench {
	t.Helper()
	runtime.LockOSThread()
	cpu := firstCPU(t)
	return &bench{options: options{rounds: 1, quick: true, streams: 100}, dir: t.TempDir(), proxyCPU: cpu, loadCPU: cpu, log: t.Output()}
}

func firstCPU(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(text), "Cpus_allowed_list:")
	var cpu int
	if _, err := fmt.Sscan(strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == '-' || r == '\n' })[0], &cpu); err != nil {
		t.Fatal(err)
	}
	return cpu
}

func standIn(t *testing.T, b *bench, as string) *process {
	t.Helper()
	p, err := b.start([]string{"BENCH_TEST_AS=" + as}, os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.stop)
	return p
}

func TestProcessIsReadyMeasuredAndKilled(t *testing.T) {
	p := standIn(t, testBench(t), "starling")
	if err := p.awaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	if p.at.String() != "127.0.0.1:4711" {
		t.Errorf("address %s", p.at)
	}
	first, err := p.cpu()
	if err != nil || first <= 0 {
		t.Fatalf("CPU time %v, err %v", first, err)
	}
	for deadline := time.Now().Add(5 * time.Second); ; runtime.Gosched() { // it spins, so its clock must go on
		now, err := p.cpu()
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("CPU time stays at %v, err %v", now, err)
		}
		if now > first {
			break
		}
	}
	if mem, err := p.resident(); err != nil || mem < 1<<20 || mem > 1<<30 {
		t.Errorf("%d bytes resident, err %v", mem, err)
	}
	p.stop()
	if err := syscall.Kill(-p.cmd.Process.Pid, 0); err == nil {
		t.Error("somebody of the group still lives")
	}
	if _, err := p.cpu(); err == nil {
		t.Error("a dead process has a CPU clock")
	}
}

func TestProcessThatEndsSaysWhy(t *testing.T) {
	b := testBench(t)
	at, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	for name, await := range map[string]func(*process, context.Context) error{"line": (*process).awaitReady, "port": (*process).awaitPort} {
		p := standIn(t, b, "broken")
		p.at = at
		if err := await(p, t.Context()); err == nil || !strings.Contains(err.Error(), "no such key: pools") {
			t.Errorf("waiting for its %s: err %v", name, err)
		}
	}
}

func TestAwaitPort(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	p := &process{at: l.Addr().(*net.TCPAddr).AddrPort(), output: &output{}}
	if err := p.awaitPort(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestRealTimeIsUndoneForAllThreads(t *testing.T) {
	undo, allowed := realTime()
	policies := func() map[uint32]int {
		n := map[uint32]int{}
		if err := eachThread(func(id int) error {
			is, err := unix.SchedGetAttr(id, 0)
			if err == nil {
				n[is.Policy]++
			}
			return err
		}); err != nil {
			t.Error(err)
		}
		return n
	}
	during := policies()
	undo()
	if after := policies(); len(after) != 1 || after[unix.SCHED_NORMAL] == 0 {
		t.Errorf("threads by policy afterwards: %v", after)
	}
	if allowed && (len(during) != 1 || during[unix.SCHED_FIFO] == 0) {
		t.Errorf("threads by policy meanwhile: %v", during)
	}
}

func TestOutputIsBounded(t *testing.T) {
	o := &output{ready: make(chan struct{})}
	for range 100 {
		if n, err := o.Write([]byte(strings.Repeat("x", 1000))); n != 1000 || err != nil {
			t.Fatal(n, err)
		}
	}
	if len(o.text) != maxOutput {
		t.Errorf("%d bytes kept, want %d", len(o.text), maxOutput)
	}
}

// The generator against the backend alone, through the same code as a run.
func TestDirectEndToEnd(t *testing.T) {
	b := testBench(t)
	b.targets = []target{{name: direct}}
	var cases []benchCase
	for _, c := range allCases() {
		switch c.name {
		case "small", "post", "churn", "gone": // idle needs a process, sse would run before other packages' tests
			cases = append(cases, c)
		}
	}
	r := newReport(nil, b.names(), cases)
	if err := b.rounds(t.Context(), cases, r); err != nil {
		t.Fatal(err)
	}
	if len(r.faults) > 0 {
		t.Fatal(r.faults)
	}
	for _, c := range cases {
		v := r.samples[[2]string{c.name, direct}]
		if len(v) != 1 || v[0] == nil {
			t.Errorf("%s: %v", c.name, v)
		}
	}
}

func TestConfigurationIsFilledIn(t *testing.T) {
	b := testBench(t)
	at, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	for name, p := range map[string]peer{
		"starling": {"starling.yaml", starlingConfig, starlingTLS}, "nginx": {"nginx.conf", nginxConfig, nginxTLS}, "haproxy": {"haproxy.cfg", haproxyConfig, haproxyTLS},
	} {
		file, err := b.write(p.file, p.config, p.secure, order{at, true})
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		left := regexp.MustCompile(`\b(BACKEND|DIR|ROOM|SECURE)\b`).Find(text)
		if left != nil || !strings.Contains(string(text), at.String()) || !strings.Contains(string(text), ".pem") {
			t.Errorf("%s: %q is left, or no backend or certificate, in:\n%s", name, left, text)
		}
	}
}
