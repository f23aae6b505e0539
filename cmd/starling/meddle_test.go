package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// asMeddler has the test's own program be a process between a node and its heir, that
// passes on what they say until the heir serves. Then it
//
//	fails   kills the heir, and says that it failed
//	deaf    likewise, says that it serves, and can hear no answer
//	holds   does not pass that on, nor what comes after it, but for the elder's end
//	waits   passes it on once the test says so
const asMeddler = "STARLING_MEDDLES"

// meddle returns the exit code.
func meddle(how string) int {
	_ = os.Unsetenv(asMeddler)
	elder := os.NewFile(3, "elder")
	fromElder := bufio.NewReader(elder)
	offer, err := fromElder.ReadString('\n')
	if err != nil {
		return 1
	}
	heir, end, err := startHeir(offer)
	if err != nil {
		fmt.Fprintln(os.Stderr, "meddle:", err)
		return 1
	}
	go func() {
		for line := offer; ; {
			if _, err := heir.WriteString(line); err != nil {
				return
			}
			var err error
			if line, err = fromElder.ReadString('\n'); err != nil {
				_ = heir.Close()
				return
			}
		}
	}()
	for fromHeir := bufio.NewReader(heir); ; {
		line, err := fromHeir.ReadString('\n')
		if err != nil {
			return 1
		}
		if strings.Contains(line, `"word":"ready"`) {
			switch fmt.Println("held"); how {
			case "holds":
				continue
			case "waits":
				awaitFile(os.Args[len(os.Args)-1] + ".go")
			default:
				end()
			}
			switch how {
			case "deaf":
				_ = syscall.Shutdown(3, syscall.SHUT_RD) // the elder's end cannot write from here on
			case "fails":
				line = `{"word":"failed","why":"it was meddled with"}` + "\n"
			}
		}
		if _, err := elder.WriteString(line); err != nil {
			return 1
		}
	}
}

// awaitFile waits for a file by that name, which is beside the configuration.
func awaitFile(name string) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for by := time.Now().Add(dayLimit); time.Now().Before(by); <-tick.C {
		if _, err := os.Stat(name); err == nil {
			return
		}
	}
}

// startHeir starts the real one, with what was inherited. end ends it.
func startHeir(offer string) (talk *os.File, end func(), err error) {
	var said struct {
		Sockets []json.RawMessage `json:"sockets"`
	}
	if err := json.Unmarshal([]byte(offer), &said); err != nil {
		return nil, nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		return nil, nil, err
	}
	syscall.CloseOnExec(pair[0])
	syscall.CloseOnExec(pair[1])
	files := []uintptr{0, 1, 2, uintptr(pair[1]), 4} // raw, as they came
	for i := range said.Sockets {
		files = append(files, uintptr(5+i))
	}
	pid, _, err := syscall.StartProcess(self, os.Args, &syscall.ProcAttr{Env: append(os.Environ(), "STARLING_HANDOVER=3"), Files: files})
	if err != nil {
		return nil, nil, err
	}
	_ = syscall.Close(pair[1])
	process, err := os.FindProcess(pid)
	if err != nil {
		return nil, nil, err
	}
	return os.NewFile(uintptr(pair[0]), "heir"), func() { _ = process.Kill(); _, _ = process.Wait() }, nil
}

// meddled has the next upgrades be meddled with, until the program is the real one again.
func (r *rig) meddled(how string) {
	r.t.Helper()
	self, err := os.Executable()
	if err == nil {
		err = os.Remove(r.program)
	}
	if err == nil {
		err = os.WriteFile(r.program, fmt.Appendf(nil, "#!/bin/sh\n%s=%s exec '%s' \"$@\"\n", asMeddler, how, self), 0o700)
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) unmeddled() {
	r.t.Helper()
	self, err := os.Executable()
	if err == nil {
		err = os.Remove(r.program)
	}
	if err == nil {
		err = os.Symlink(self, r.program)
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// TestAnUpgradeIsUndoneAtItsEnd: a new process that ends when it has opened all, and
// answered for its sessions, before it is told that it is the node or so that it cannot
// be told, leaves the one before be the node; twice over, and no request fails.
func TestAnUpgradeIsUndoneAtItsEnd(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.configure("node: {name: n1, data_dir: %s/data, drain_timeout: 5m}\nadmin: {address: 127.0.0.1:0}\nlisteners:\n  - {address: 127.0.0.1:0}\n%s", r.dir, r.pools("strict"))
	r.start()
	r.events("s")
	within(t, dayLimit, func() string { return r.serves("t") })
	stop := r.load(t)
	for how, why := range map[string]string{"fails": "it was meddled with", "deaf": "ended before it served"} {
		r.meddled(how)
		if code, said := r.command("upgrade"); code == 0 || !strings.Contains(said, why) {
			t.Errorf("%s: exit %d, %s", how, code, said)
		}
		within(t, dayLimit, func() string { return r.serves("s") })
		r.staysPut("s")
		if s, err := r.status(); err != nil || s.Node.PID != r.pid {
			t.Errorf("%s: the node is process %d, %v; it was %d", how, s.Node.PID, err, r.pid)
		}
	}
	r.unmeddled()
	r.upgraded(func() { r.command("upgrade") })
	r.staysPut("s")
	r.moves("t")
	if stop() == 0 {
		t.Error("nobody asked meanwhile")
	}
	within(t, dayLimit, func() string { return r.exact(1) })
	r.end()
	r.streams.Wait()
	within(t, dayLimit, r.alone)
	r.moves("s")
}

// moves has a session moved whose turn does not run.
func (r *rig) moves(session string) {
	r.t.Helper()
	to := map[string]string{"b1": "b2", "b2": "b1"}[r.home(session)]
	within(r.t, dayLimit, func() string {
		r.command("move", session, to, "--pool", "p")
		if at := r.home(session); at != to {
			return fmt.Sprintf("session %s is at %s", session, at)
		}
		return ""
	})
}
