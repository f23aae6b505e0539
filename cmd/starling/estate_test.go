package main

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/starling-lb/starling/node/api"
)

// failing is a backend that answers 503 while it is ill, and otherwise after a while.
type failing struct {
	*httptest.Server
	ill   atomic.Bool
	takes time.Duration
	asked atomic.Int64
	hangs atomic.Pointer[chan struct{}] // until when answers wait; nil: they do not
}

func newFailing(t *testing.T, takes time.Duration) *failing {
	f := &failing{takes: takes}
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		f.asked.Add(1)
		if f.ill.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		if until := f.hangs.Load(); until != nil {
			select {
			case <-*until:
			case <-q.Context().Done():
			}
		}
		select {
		case <-time.After(f.takes):
		case <-q.Context().Done():
		}
		fmt.Fprintln(w, "ok")
	}))
	t.Cleanup(f.Close)
	return f
}

// TestUpgradeKeepsWhatIsKnown: what a process has found out of its backends is known
// to the next one: who is ejected stays out for the time that is left, and a third time
// in a row is the third; speeds and slow starts go on.
func TestUpgradeKeepsWhatIsKnown(t *testing.T) {
	t.Parallel()
	r := &rig{process: newProcess(t)}
	fast, slow, bad := newFailing(t, 0), newFailing(t, 80*time.Millisecond), newFailing(t, 0)
	r.configure(`log: {level: info}
node: {name: n1, data_dir: %s/data}
admin: {address: 127.0.0.1:0}
listeners:
  - {address: 127.0.0.1:0}
pools:
  p:
    policy: round_robin
    backends: [{id: fast, url: %q}, {id: slow, url: %q}, {id: bad, url: %q}]
    health: {enabled: false}
    backend: {engine: none, slow_start: 1h}
    outlier: {consecutive_failures: 3, base_ejection: 10m, max_ejection: 1h}
`, r.dir, fast.URL, slow.URL, bad.URL)
	r.start()
	ask := func() { r.serves("") }
	for range 40 {
		ask() // so that header times tell who is slow
	}
	bad.ill.Store(true)
	within(t, dayLimit, func() string {
		ask()
		return r.lacksOf("bad", func(b api.Backend) bool { return b.State == "ejected" })
	})
	var was api.Backends
	within(t, dayLimit, func() string {
		if err := r.get("/v1/backends", &was); err != nil {
			return err.Error()
		}
		if len(was.Backends) != 3 || was.Backends[0].Speed < 2*was.Backends[1].Speed || was.Backends[1].Speed == 0 {
			ask()
			return fmt.Sprintf("it does not tell yet who is slow: %+v", was.Backends)
		}
		return ""
	})
	for range 2 { // the second heir has it from the first
		before := bad.asked.Load()
		r.upgraded(func() {
			if code, said := r.command("upgrade"); code != 0 {
				t.Fatalf("exit %d, %s", code, said)
			}
		})
		var is api.Backends
		if err := r.get("/v1/backends", &is); err != nil {
			t.Fatal(err)
		}
		for i, b := range is.Backends {
			a := was.Backends[i]
			if b.State != a.State || b.Reason != a.Reason || !b.Since.Equal(a.Since) || (b.EjectedUntil == nil) != (a.EjectedUntil == nil) || b.EjectedUntil != nil && !b.EjectedUntil.Equal(*a.EjectedUntil) {
				t.Errorf("%s was %+v, and is %+v", b.ID, a, b)
			}
		}
		if fast, slow := is.Backends[0].Speed, is.Backends[1].Speed; slow == 0 || fast < 2*slow {
			t.Errorf("speeds were %v and %v, and are %v and %v", was.Backends[0].Speed, was.Backends[1].Speed, fast, slow)
		}
		for range 6 {
			ask()
		}
		if n := bad.asked.Load() - before; n > 0 {
			t.Errorf("one that is out got %d streams", n)
		}
	}
	if n, err := r.gauge(`starling_handed_over{of="backend",outcome="taken"}`); err != nil || n != 3 {
		t.Errorf("%v backends were taken over, %v", n, err)
	}
	if !strings.Contains(r.log(), `msg="goes on with what the process before knew" backends=3 `) {
		t.Error("the log does not say what was taken over")
	}
}

// TestUpgradeDuringATrial: the one stream that decides over an ejected backend runs
// while its node is upgraded. The next process sends no other one there, and does as the
// first one finds.
func TestUpgradeDuringATrial(t *testing.T) {
	t.Parallel()
	r := &rig{process: newProcess(t)}
	good, bad := newFailing(t, 0), newFailing(t, 0)
	r.configure(`log: {level: info}
node: {name: n1, data_dir: %s/data}
admin: {address: 127.0.0.1:0}
listeners:
  - {address: 127.0.0.1:0}
pools:
  p:
    policy: round_robin
    backends: [{id: good, url: %q}, {id: bad, url: %q}]
    health: {enabled: false}
    backend: {engine: none}
    outlier: {consecutive_failures: 1, base_ejection: 1s}
`, r.dir, good.URL, bad.URL)
	r.start()
	hangs := make(chan struct{})
	decide := sync.OnceFunc(func() { close(hangs) })
	t.Cleanup(decide)
	is := func(state string) func(api.Backend) bool {
		return func(b api.Backend) bool { return string(b.State) == state }
	}
	bad.ill.Store(true)
	within(t, dayLimit, func() string {
		r.serves("")
		return r.lacksOf("bad", is("ejected"))
	})
	bad.ill.Store(false)
	bad.hangs.Store(&hangs)
	before := bad.asked.Load()
	var trial sync.WaitGroup
	within(t, dayLimit, func() string {
		trial.Go(func() {
			if wrong := r.serves(""); wrong != "" {
				t.Error(wrong)
			}
		})
		if bad.asked.Load() == before {
			return "it is not tried"
		}
		return ""
	})
	r.upgraded(func() { r.command("upgrade") })
	for range 6 {
		if wrong := r.serves(""); wrong != "" {
			t.Error(wrong)
		}
	}
	if n := bad.asked.Load() - before; n != 1 {
		t.Errorf("%d streams try it at once", n)
	}
	if lacks := r.lacksOf("bad", is("ejected")); lacks != "" {
		t.Error(lacks)
	}
	decide()
	trial.Wait()
	within(t, dayLimit, func() string { return r.lacksOf("bad", is("active")) })
}

// lacksOf says that a backend is not as it should be.
func (r *rig) lacksOf(id string, is func(api.Backend) bool) string {
	var list api.Backends
	if err := r.get("/v1/backends", &list); err != nil {
		return err.Error()
	}
	for _, b := range list.Backends {
		if b.ID == id && is(b) {
			return ""
		}
	}
	return fmt.Sprintf("%s is not yet so: %+v", id, list.Backends)
}

// TestUpgradesDuringADrain: a backend's drain goes on over upgrades, and over one that
// fails: it is over when its last stream has ended, whichever process carries it, and
// then it is told once. An ejection is told once, too, and one that was ended at this
// node alone stays so.
func TestUpgradesDuringADrain(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	text := fmt.Sprintf("reload: {watch: false}\nnode: {name: n1, data_dir: %s/data, drain_timeout: 5m}\nadmin: {address: 127.0.0.1:0}\n%slisteners:\n  - {address: 127.0.0.1:0}\n", r.dir, r.pools("available"))
	r.configure("%s", text)
	r.start()
	r.last("s")
	home := r.home("s")
	if code, said := r.command("backend", "drain", home); code != 0 {
		t.Fatalf("exit %d, %s", code, said)
	}
	other := map[string]string{"b1": "b2", "b2": "b1"}[home]
	if code, said := r.command("backend", "eject", other); code != 0 {
		t.Fatalf("exit %d, %s", code, said)
	}
	began := r.lacksOf(home, func(b api.Backend) bool { return b.State == "draining" && !strings.Contains(b.Reason, "drained") })
	if began != "" {
		t.Fatal(began)
	}
	for i := range 3 {
		if i == 2 {
			if code, said := r.command("backend", "admit", other, "--here"); code != 0 {
				t.Errorf("exit %d, %s", code, said)
			}
		}
		if i == 1 {
			taken, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			r.configure("%s  - {address: %q}\n", text, taken.Addr())
			if code, said := r.command("upgrade"); code == 0 || !strings.Contains(said, "address already in use") {
				t.Errorf("exit %d, %s", code, said)
			}
			_ = taken.Close()
			r.configure("%s", text)
		} else {
			r.upgraded(func() { r.command("upgrade") })
		}
		within(t, dayLimit, func() string { return r.exact(1) })
		if wrong := r.lacksOf(home, func(b api.Backend) bool { return b.State == "draining" && b.Reason == "an operator drains it" }); wrong != "" {
			t.Errorf("after upgrade %d: %s", i, wrong)
		}
		if wrong := r.lacksOf(other, func(b api.Backend) bool { return string(b.State) == []string{"ejected", "ejected", "active"}[i] }); wrong != "" {
			t.Errorf("after upgrade %d: %s", i, wrong)
		}
	}
	if code, said := r.command("events", "--once", "--recent", "1000"); code != 0 || strings.Contains(said, "drained") || strings.Count(said, "an operator drains it") != 1 || strings.Count(said, "ejected: by an operator") != 1 {
		t.Errorf("exit %d, and the drain or the ejection was told of otherwise than once, or the drain's end while its stream runs:\n%s", code, said)
	}
	r.end()
	r.streams.Wait()
	within(t, dayLimit, func() string {
		return r.lacksOf(home, func(b api.Backend) bool { return strings.HasPrefix(b.Reason, "drained in ") })
	})
	r.tells("drained in ")
	within(t, dayLimit, r.alone)
	r.signal(syscall.SIGTERM)
	within(t, dayLimit, func() string {
		if n := strings.Count(r.log(), "msg=drained"); n != 3 {
			return fmt.Sprintf("%d processes have ended well", n)
		}
		return ""
	})
	r.ended = make(chan int, 1)
	r.start() // with nothing to wait for
	if wrong := r.lacksOf(home, func(b api.Backend) bool { return b.Reason == "drained before this process began" }); wrong != "" {
		t.Error(wrong)
	}
	if n, err := r.gauge(`starling_drains_total{result="done"}`); err != nil || n != 0 {
		t.Errorf("%v drains ended at a start, %v", n, err)
	}
}
