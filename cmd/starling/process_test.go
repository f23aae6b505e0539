package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/starling-lb/starling/node/api"
)

// asStarling has the test's own program be starling, so that a node is a process that
// can start another one of itself.
const asStarling = "STARLING_IS_TESTED"

func TestMain(m *testing.M) {
	if meddles := os.Getenv(asMeddler); meddles != "" {
		os.Exit(meddle(meddles))
	}
	if os.Getenv(asStarling) != "" {
		os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// process is a node in a process of its own, and whatever processes it becomes.
type process struct {
	t             *testing.T
	dir           string
	program       string // a link that a test may lead elsewhere
	config        string
	out           string // where all its processes write
	proxy, admin  string
	first         *exec.Cmd
	ended         chan int // the first process's exit code
	pid           int      // of the process that is the node
	environ, wrap []string
	files         []*os.File // that the first process gets, from descriptor 3 on
}

// newProcess makes one that does not run yet.
func newProcess(t *testing.T) *process {
	t.Helper()
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, dir: dir, program: filepath.Join(dir, "starling"), config: filepath.Join(dir, "starling.yaml"), out: filepath.Join(dir, "out"), ended: make(chan int, 1)}
	if err := os.Symlink(self, p.program); err != nil {
		t.Fatal(err)
	}
	return p
}

// configure writes the configuration.
func (p *process) configure(format string, args ...any) {
	p.t.Helper()
	if err := os.WriteFile(p.config, fmt.Appendf(nil, format, args...), 0o600); err != nil {
		p.t.Fatal(err)
	}
}

// start starts it, and ends it with the test.
func (p *process) start() {
	p.t.Helper()
	out, err := os.OpenFile(p.out, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		p.t.Fatal(err)
	}
	defer out.Close()
	before, ended := p.readies(), p.ended
	args := append(append([]string(nil), p.wrap...), p.program, "serve", "--config", p.config)
	c := exec.Command(args[0], args[1:]...)
	c.Env = append(append(os.Environ(), asStarling+"=1", "NOTIFY_SOCKET="), p.environ...) // whoever runs the tests is no supervisor of theirs
	c.Stdout, c.Stderr, c.ExtraFiles = out, out, p.files
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // heirs are in the group
	if err := c.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.first, p.pid = c, c.Process.Pid
	p.t.Cleanup(func() {
		_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
		if p.t.Failed() {
			p.t.Logf("%s:\n%s", p.dir, tailOf(p.log(), 12000))
		}
	})
	go func() {
		err := c.Wait()
		if c.ProcessState != nil {
			ended <- c.ProcessState.ExitCode()
			return
		}
		p.t.Error(err)
	}()
	within(p.t, dayLimit, func() string {
		if n := p.readies(); n == before {
			return "not ready: " + tailOf(p.log(), 2000)
		}
		return ""
	})
	all := regexp.MustCompile(`(?m)^ready proxy=([^,\s]+)\S* admin=(\S+)$`).FindAllStringSubmatch(p.log(), -1)
	p.proxy, p.admin = all[len(all)-1][1], all[len(all)-1][2]
}

func (p *process) log() string {
	text, _ := os.ReadFile(p.out)
	return string(text)
}

// readies counts the processes that have begun to serve.
func (p *process) readies() int { return strings.Count(p.log(), "ready proxy=") }

func tailOf(text string, n int) string { return text[max(0, len(text)-n):] }

// status is what the node says of itself.
func (p *process) status() (s api.Status, err error) {
	return s, p.get("/v1/status", &s)
}

func (p *process) get(path string, v any) error {
	client := http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + p.admin + path)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(resp.Body)
		return fmt.Errorf("%s: %s %s", path, resp.Status, text)
	}
	if text, ok := v.(*string); ok {
		all, err := io.ReadAll(resp.Body)
		*text = string(all)
		return err
	}
	return json.NewDecoder(resp.Body).Decode(v)
}

// upgraded returns once another process is the node, after what asked for it.
func (p *process) upgraded(ask func()) {
	p.t.Helper()
	before := p.readies()
	ask()
	within(p.t, dayLimit, func() string {
		s, err := p.status()
		if err != nil || s.Node.PID == p.pid || p.readies() == before {
			return fmt.Sprintf("process %d is the node still: %v, %v", p.pid, s.Node, err)
		}
		p.pid = s.Node.PID
		return ""
	})
}

// command runs a command against the node; it returns the exit code and what was said.
func (p *process) command(args ...string) (int, string) {
	var out printed
	code := run(append(args, "--admin", "http://"+p.admin), &out, &out)
	return code, out.String()
}

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := syscall.Kill(p.pid, s); err != nil {
		p.t.Fatal(err)
	}
}

// alone is whether the node has no older process any more.
func (p *process) alone() string {
	s, err := p.status()
	if err != nil || len(s.Elders) > 0 {
		return fmt.Sprintf("elders %v, %v", s.Elders, err)
	}
	return ""
}

// gauge reads a metric by its name and labels as they are printed.
func (p *process) gauge(series string) (float64, error) {
	var text string
	if err := p.get("/metrics", &text); err != nil {
		return 0, err
	}
	lines := bufio.NewScanner(strings.NewReader(text))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if value, ok := strings.CutPrefix(lines.Text(), series+" "); ok {
			return strconv.ParseFloat(value, 64)
		}
	}
	return 0, fmt.Errorf("no series %s", series)
}
