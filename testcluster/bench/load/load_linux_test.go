package load

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func startBackend(t *testing.T) (*Backend, netip.AddrPort) {
	t.Helper()
	b := NewBackend(NewClock())
	at, err := b.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Stop(); err != nil {
			t.Error(err)
		}
	})
	return b, at
}

func TestExchangeAgainstTheBackend(t *testing.T) {
	tests := map[string]Exchange{
		"GET":    {Answer: 200, Conns: 8},
		"POST":   {Answer: 200, Upload: 100_000, Conns: 8},
		"1 MiB":  {Answer: 1 << 20, Conns: 3},
		"churn":  {Answer: 200, Conns: 8, Fresh: true},
		"nobody": {Answer: 0, Conns: 1},
	}
	for name, x := range tests {
		t.Run(name, func(t *testing.T) {
			b, at := startBackend(t)
			marks := 0
			x.Target, x.Warm, x.Measure, x.Mark = at, 20*time.Millisecond, 100*time.Millisecond, func() { marks++ }
			r, err := x.Run(t.Context(), b.clock)
			if err != nil {
				t.Fatal(err)
			}
			if r.Requests == 0 || r.Bytes != int64(r.Requests)*int64(x.Answer) || r.Elapsed < x.Measure || marks != 2 || r.Reopened != 0 {
				t.Errorf("result %+v, %d marks", r, marks)
			}
		})
	}
}

func TestStreamsAgainstTheBackend(t *testing.T) {
	b, at := startBackend(t)
	x := Streams{Target: at, Count: 100, Period: 10 * time.Millisecond, Size: 150, Ramp: 5000, Measure: 200 * time.Millisecond, Mark: func() {}}
	r, err := x.Run(t.Context(), b.clock)
	if err != nil {
		t.Fatal(err)
	}
	// 2000 are due; how many are late depends on the machine, and is no error.
	if r.Events < 200 || r.Delay.Total() < int(r.Events) || r.Delay.Quantile(.5) <= 0 {
		t.Errorf("%d events, %d delays, median %v", r.Events, r.Delay.Total(), r.Delay.Quantile(.5))
	}
}

func TestIdleStreamsHaveTheirFirstEvent(t *testing.T) {
	b, at := startBackend(t)
	x := Streams{Target: at, Count: 50, Period: time.Hour, Size: 150, AtOnce: true, Ramp: 5000, Mark: func() {}}
	if r, err := x.Run(t.Context(), b.clock); err != nil || r.Events != 0 {
		t.Errorf("%d events in no time, err %v", r.Events, err)
	}
}

func TestLeaveAgainstTheBackend(t *testing.T) {
	for _, midStream := range []bool{false, true} {
		b, at := startBackend(t)
		delay, err := Leave{Target: at, MidStream: midStream, Count: 20}.Run(t.Context(), b)
		if err != nil {
			t.Fatal(err)
		}
		if delay.Total() != 20 || delay.Max() >= never {
			t.Errorf("mid-stream %v: %d ends, the last after %v", midStream, delay.Total(), delay.Max())
		}
	}
}

// A server that answers wrongly must void the run.
func TestWrongServersAreNoticed(t *testing.T) {
	tests := map[string]struct{ answer, want string }{
		"status": {"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n", "503"},
		"body":   {"HTTP/1.1 200 OK\r\nContent-Length: 200\r\n\r\n" + strings.Repeat("x", 200), errBody.Error()},
		"cut":    {"HTTP/1.1 200 OK\r\nContent-Length: 200\r\n\r\n" + string(Pattern(10)), errCut.Error()},
		"stall":  {"HTTP/1.1 200 OK\r\nContent-Length: 200\r\n", errStalled.Error()},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			at := serveRaw(t, tt.answer, name != "stall")
			x := Exchange{Target: at, Answer: 200, Conns: 2, Measure: 300 * time.Millisecond, Mark: func() {}}
			if _, err := x.Run(t.Context(), NewClock()); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("err %v, want one about %q", err, tt.want)
			}
		})
	}
}

// serveRaw answers every connection's first bytes with the given ones.
func serveRaw(t *testing.T, answer string, hangUp bool) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() {
		l.Close()
		<-done
	})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			defer c.Close() // when the test is over
			_, _ = c.Read(make([]byte, 4096))
			_, _ = c.Write([]byte(answer))
			if hangUp {
				c.Close()
			}
		}
	}()
	return l.Addr().(*net.TCPAddr).AddrPort()
}

func TestOnlyLoopbackIsLoaded(t *testing.T) {
	x := Exchange{Target: netip.MustParseAddrPort("192.0.2.1:80"), Conns: 1, Mark: func() {}}
	if _, err := x.Run(t.Context(), NewClock()); err == nil || !strings.Contains(err.Error(), "loopback") {
		t.Errorf("err %v", err)
	}
}

func TestCancelEndsARun(t *testing.T) {
	b, at := startBackend(t)
	ctx, cancel := context.WithCancel(t.Context())
	x := Exchange{Target: at, Answer: 200, Conns: 2, Measure: time.Hour, Mark: cancel}
	if _, err := x.Run(ctx, b.clock); err == nil {
		t.Error("a cancelled run is valid")
	}
}

func TestBackendRefusesAWrongUpload(t *testing.T) {
	_, at := startBackend(t)
	c, err := net.Dial("tcp4", at.String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprint(c, "POST /bytes/1 HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n!!!")
	p := make([]byte, 12)
	if _, err := c.Read(p); err != nil || string(p) != "HTTP/1.1 400" {
		t.Errorf("answer %q, err %v", p, err)
	}
}

func TestFaultsStayFew(t *testing.T) {
	f := faults{}
	if f.err() != nil {
		t.Error("no fault is an error")
	}
	for i := range 1000 {
		f.add(fmt.Errorf("fault %d", i))
	}
	if len(f) != 17 || f["other errors"] != 1000-16 || f.err() == nil {
		t.Errorf("%d kinds, %d others", len(f), f["other errors"])
	}
}
