package chaos

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/starling-lb/starling/node/api"
)

// nowhere is a network that no node is in.
type nowhere struct{}

func (nowhere) places(int) (places, error) { return places{}, nil }
func (nowhere) open(*member) error         { return nil }
func (nowhere) shut(*member)               {}
func (nowhere) ways() ways                 { return nil }
func (nowhere) end()                       {}

// bare are processes that are no nodes.
func bare(t *testing.T) *processes {
	t.Helper()
	dir := t.TempDir()
	g := &processes{dir: dir, spawner: newSpawner(), net: nowhere{}, is: map[string]*child{}}
	var err error
	if g.sweeper, err = newSweeper([]string{"true"}, dir); err != nil {
		t.Fatal(err)
	}
	return g
}

// ends fails where it takes long until there are no processes any more.
func (g *processes) ends(t *testing.T) {
	t.Helper()
	ended := make(chan struct{})
	go func() { defer close(ended); g.end() }()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatal("the harness waits for a process that it does not know")
	}
}

// script runs one as the process of a node, until it serves.
func (g *processes) script(t *testing.T, m *member, text string) *child {
	t.Helper()
	c, serves, err := g.run(m, []string{"sh", "-c", text}, true)
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-serves:
	case <-time.After(time.Minute):
		t.Fatal("it does not serve")
	}
	return c
}

// TestEndsWithoutTheHeir: a process that became a node, and that nobody heard of, has
// the harness wait neither where it ends with it nor where it does not.
func TestEndsWithoutTheHeir(t *testing.T) {
	t.Parallel()
	for name, heir := range map[string]string{
		"that ends":      "exec 3<&0; cat <&3 >&1 & echo ready; exec cat",
		"that goes on":   "sleep 100 & echo $! >&2; echo ready; exec cat",
		"and none there": "echo ready; exec cat",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := bare(t)
			g.script(t, &member{name: "n1"}, heir)
			g.ends(t)
			if pid := tail(filepath.Join(g.dir, "n1.log")); pid != "" {
				if out, err := exec.Command("kill", strings.TrimSpace(pid)).CombinedOutput(); err != nil {
					t.Errorf("it did not go on: %v, %s", err, out)
				}
			}
		})
	}
}

// TestLostAnswer: where the answer to a hand-over is lost, who became the node is found
// by its own word, and ends with the harness; where nobody did, the one before is the
// node.
func TestLostAnswer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	heir := exec.Command("sleep", "60")
	if err := heir.Start(); err != nil {
		t.Fatal(err)
	}
	reaped := make(chan struct{})
	go func() { defer close(reaped); _ = heir.Wait() }()
	t.Cleanup(func() { _ = heir.Process.Kill(); <-reaped })
	asked := make(chan struct{}, 100)
	admin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			asked <- struct{}{}
			panic(http.ErrAbortHandler) // nobody is answered
		}
		s := api.Status{Node: api.Node{Name: "n1", PID: heir.Process.Pid}}
		if err := json.NewEncoder(w).Encode(s); err != nil {
			t.Error(err)
		}
	}))
	defer admin.Close()
	g := bare(t)
	defer g.ends(t)
	m := &member{name: "n1", file: filepath.Join(dir, "n1.yaml"), at: places{admin: strings.TrimPrefix(admin.URL, "http://")}}
	c := g.script(t, m, "echo ready; exec cat")
	b, words, err := g.handOver(t.Context(), m, c)
	if err != nil || len(asked) != 1 || !strings.Contains(words, fmt.Sprintf("process %d is the node after all", heir.Process.Pid)) {
		t.Fatalf("%q, %v, asked %d times", words, err, len(asked))
	}
	b.kill()
	for what, ended := range map[string]<-chan struct{}{"the heir": b.died, "the one before": c.died} {
		select {
		case <-ended:
		case <-time.After(time.Minute):
			t.Errorf("%s goes on", what)
		}
	}
}

// TestStillHandsNothingOver: a process that stands still is asked to hand over once it
// goes on, since it would do so then, when nobody waits for it.
func TestStillHandsNothingOver(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{}, 100)
	admin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		w.Header().Set("X-Starling-Error", "conflict")
		w.WriteHeader(http.StatusConflict)
		fmt.Fprint(w, `{"error": {"code": "conflict", "message": "no"}}`)
	}))
	defer admin.Close()
	g := bare(t)
	defer g.ends(t)
	m := &member{name: "n1", at: places{admin: strings.TrimPrefix(admin.URL, "http://")}}
	c := g.script(t, m, "echo ready; exec cat")
	if err := c.freeze(true); err != nil {
		t.Fatal(err)
	}
	over := make(chan error, 1)
	go func() {
		_, _, err := g.handOver(t.Context(), m, c)
		over <- err
	}()
	select {
	case <-asked:
		t.Error("asked while it stood still")
	case <-time.After(5 * lookEvery):
	}
	if err := c.freeze(false); err != nil {
		t.Fatal(err)
	}
	if err := <-over; !isRefused(err, http.StatusConflict) {
		t.Errorf("got %v", err)
	}
	if g.mu.Lock(); g.is["n1"] != c {
		t.Error("it is not the node any more")
	}
	g.mu.Unlock()
}

// TestNoSupervisorsWords: what a supervisor told this process, it told no node.
func TestNoSupervisorsWords(t *testing.T) {
	mine := map[string]string{"NOTIFY_SOCKET": "/run/n", "LISTEN_FDS": "2", "LISTEN_PID": "1", "LISTEN_FDNAMES": "a:b", "WATCHDOG_USEC": "9", "WATCHDOG_PID": "1"}
	for name, value := range mine {
		t.Setenv(name, value)
	}
	t.Setenv("CHAOS_TEST", "LISTEN_FDS=2")
	g := bare(t)
	g.script(t, &member{name: "n1"}, "env >&2; echo ready; exec cat")
	g.ends(t)
	text, err := os.ReadFile(filepath.Join(g.dir, "n1.log"))
	if err != nil || !strings.Contains("\n"+string(text), "\nCHAOS_TEST=LISTEN_FDS=2\n") {
		t.Fatalf("%v: %s", err, text)
	}
	for name := range mine {
		if strings.Contains("\n"+string(text), "\n"+name+"=") {
			t.Errorf("a node hears of %s", name)
		}
	}
}
