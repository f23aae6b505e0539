package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/starling-lb/starling/node/api"
)

// group are the processes of the node that live.
func (p *process) group() (pids []int) {
	all, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, name := range all {
		text, _ := os.ReadFile(name) // it may have ended
		pid, rest, _ := strings.Cut(string(text), " (")
		fields := strings.Fields(rest[strings.LastIndexByte(rest, ')')+1:])
		if len(fields) > 2 && fields[2] == strconv.Itoa(p.first.Process.Pid) && fields[0] != "Z" {
			n, _ := strconv.Atoi(pid)
			pids = append(pids, n)
		}
	}
	return pids
}

// TestSignalsDuringAnUpgrade: at any moment of an upgrade either process may be told to
// end, or the new one die. Whoever is the node then serves or drains, the stream that
// runs ends whole, nobody is left behind, and the next one that is started finds the
// sessions.
func TestSignalsDuringAnUpgrade(t *testing.T) {
	t.Parallel()
	moments := 2
	if *upgradeFull {
		moments = 40
	}
	took := upgradeTakes(t)
	for _, c := range []struct {
		name   string
		signal syscall.Signal
		heir   bool
	}{{"elder told to end", syscall.SIGTERM, false}, {"heir told to end", syscall.SIGTERM, true}, {"heir killed", syscall.SIGKILL, true}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for i := range moments {
				signalled(t, c.signal, c.heir, took*time.Duration(i+1)*11/10/time.Duration(moments))
			}
		})
	}
}

const alone = "node: {name: n1, data_dir: %s/data, drain_timeout: 5m}\nreload: {watch: false}\nadmin: {address: 127.0.0.1:0}\nlisteners:\n  - {address: 127.0.0.1:0}\n%s"

// upgradeTakes is how long one takes here.
func upgradeTakes(t *testing.T) time.Duration {
	r := newRig(t)
	r.configure(alone, r.dir, r.pools("strict"))
	r.start()
	began := time.Now()
	r.upgraded(func() { r.command("upgrade") })
	r.signal(syscall.SIGTERM)
	return time.Since(began)
}

// signalled is one upgrade, and a signal at a moment of it.
func signalled(t *testing.T, signal syscall.Signal, heir bool, after time.Duration) {
	r := newRig(t)
	r.configure(alone, r.dir, r.pools("strict"))
	r.start()
	r.last("s")
	home := r.home("s")
	r.signal(syscall.SIGUSR2)
	<-time.After(after)
	told := []int{}
	for _, pid := range r.group() {
		if (pid != r.pid) == heir {
			_ = syscall.Kill(pid, signal)
			told = append(told, pid)
		}
	}
	if heir {
		r.servesOrEnds(after)
	}
	r.end()
	r.streams.Wait()
	within(t, dayLimit, func() string {
		left := r.group()
		if s, err := r.status(); err == nil && !slices.Contains(told, s.Node.PID) && slices.Contains(left, s.Node.PID) { // or the port is somebody else's by now
			told = append(told, s.Node.PID)
			_ = syscall.Kill(s.Node.PID, syscall.SIGTERM)
		}
		if len(left) > 0 {
			return fmt.Sprintf("%v after the upgrade began: %v are left, %v were told to end", after, left, told)
		}
		return ""
	})
	if code := <-r.ended; code != 0 {
		t.Errorf("%v after the upgrade began: the first process ended with %d", after, code)
	}
	r.ended = make(chan int, 1)
	r.start()
	if at := r.home("s"); at != home {
		t.Errorf("%v after the upgrade began: the session was at %q, and is at %q", after, home, at)
	}
	r.signal(syscall.SIGTERM)
}

// TestUndoneBehindAScript: the program at the path is a script, whose child is the new
// process. When it was given all, and the upgrade is given up, nothing of it is left:
// there is one node.
func TestUndoneBehindAScript(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.configure(alone, r.dir, r.pools("strict"))
	r.start()
	r.last("")
	r.script("holds")
	r.signal(syscall.SIGUSR2)
	within(t, dayLimit, func() string {
		if !strings.Contains(r.log(), "held\n") {
			return "the new process does not serve"
		}
		return ""
	})
	r.signal(syscall.SIGTERM)
	within(t, dayLimit, func() string {
		if left := r.group(); !strings.Contains(r.log(), "the upgrade failed") || !slices.Equal(left, []int{r.pid}) {
			return fmt.Sprintf("%v are left; the node is %d", left, r.pid)
		}
		return ""
	})
	r.end()
	r.streams.Wait()
	if code := <-r.ended; code != 0 {
		t.Errorf("it ended with %d", code)
	}
}

// TestAskedDuringAnUpgrade: when the old process has let go of the node, and until its
// last stream ends, it can be asked to reload: the new one does. It is not upgraded a
// second time.
func TestAskedDuringAnUpgrade(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.configure(alone, r.dir, r.pools("strict"))
	r.start()
	r.last("s")
	elder := r.pid
	reload := func(id string) {
		r.configure(alone, r.dir, strings.Replace(r.pools("strict"), "[", fmt.Sprintf("[{id: %s, url: %q}, ", id, "http://127.0.0.1:1"), 1))
		if err := syscall.Kill(elder, syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
	}
	in := func(text string) {
		t.Helper()
		within(t, dayLimit, func() string {
			if !strings.Contains(r.log(), text) {
				return fmt.Sprintf("the log lacks %q", text)
			}
			return ""
		})
	}
	has := func(id string) {
		t.Helper()
		within(t, dayLimit, func() string { return r.lacksOf(id, func(api.Backend) bool { return true }) })
	}
	r.meddled("waits")
	r.upgraded(func() {
		r.signal(syscall.SIGUSR2)
		in("held\n")
		reload("while")
		r.signal(syscall.SIGUSR2)
		in("an upgrade is under way already")
		if err := os.WriteFile(r.config+".go", nil, 0o600); err != nil {
			t.Fatal(err)
		}
	})
	has("while")
	reload("after")
	has("after")
	if err := syscall.Kill(elder, syscall.SIGUSR2); err != nil {
		t.Fatal(err)
	}
	in("this node is not up, or is about to end")
	r.end()
	r.streams.Wait()
	if code := <-r.ended; code != 0 {
		t.Errorf("the elder ended with %d", code)
	}
}

// script has the program be one, which waits for what it starts.
func (r *rig) script(how string) {
	r.t.Helper()
	self, err := os.Executable()
	if err == nil {
		err = os.Remove(r.program)
	}
	if err == nil {
		err = os.WriteFile(r.program, fmt.Appendf(nil, "#!/bin/sh\n%s=%s '%s' \"$@\"\nexit $?\n", asMeddler, how, self), 0o700)
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// servesOrEnds waits until the upgrade is over: some process is the node and serves, or
// it was told to end in time to drain.
func (r *rig) servesOrEnds(after time.Duration) {
	within(r.t, dayLimit, func() string {
		if wrong := r.serves("t"); wrong != "" && !strings.Contains(r.log(), "msg=draining") && !strings.Contains(r.log(), "another process is the node now") {
			return fmt.Sprintf("%v after the upgrade began: %s", after, wrong)
		}
		return ""
	})
}
