package chaos

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// tables are a network namespace in which the kernel loses what shall be lost: node
// i is at 127.77.0.i there, and between two addresses there is a rule where their
// way is bad. It cannot delay; see layers.
type tables struct {
	mu    sync.Mutex
	rules map[[2]string]path // by names
	hosts map[string]string  // by name
	doors map[string]string  // of the relays before them; none: they meet without
}

// withinEnv says that this process is in a namespace of its own.
const withinEnv = "STARLING_CHAOS_NAMESPACE"

const (
	tablesNet = "127.77.0."
	resetTime = 50 * time.Millisecond // for which what comes on a connection is answered by a reset
)

// Enter runs this program again in a network namespace of its own, where it is not
// in one: then done is true, and code is how that one ended. It needs root, or a
// kernel that gives everybody a namespace, iproute2 and iptables.
func Enter(out, log io.Writer) (code int, done bool, err error) {
	if os.Getenv(withinEnv) != "" {
		return 0, false, nil
	}
	for _, tool := range []string{"ip", "iptables-restore"} {
		if _, err := find(tool); err != nil {
			return 0, false, fmt.Errorf("%w: %w; install iproute2 and iptables", ErrLevel, err)
		}
	}
	self, err := os.Executable()
	if err != nil {
		return 0, false, err
	}
	cmd := exec.Command(self, os.Args[1:]...)
	cmd.Env = append(os.Environ(), withinEnv+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, out, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if uid := os.Getuid(); uid != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: uid, Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	spawner := newSpawner()
	defer spawner.end()
	if err := spawner.startAs(cmd); err != nil {
		return 0, false, fmt.Errorf("%w: this machine gives no network namespace: %w", ErrLevel, err)
	}
	err = cmd.Wait()
	var ended *exec.ExitError
	if err != nil && !errors.As(err, &ended) {
		return 0, true, err
	}
	return cmd.ProcessState.ExitCode(), true, nil
}

// find looks for a tool, also where only root looks.
func find(tool string) (string, error) {
	for _, dir := range []string{"", "/usr/sbin/", "/sbin/"} {
		if path, err := exec.LookPath(dir + tool); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("there is no %s", tool)
}

func newTables() (*tables, error) {
	if os.Getenv(withinEnv) == "" {
		return nil, fmt.Errorf("%w: this process is in no namespace of its own", ErrLevel)
	}
	ip, err := find("ip")
	if err != nil {
		return nil, err
	}
	if out, err := exec.Command(ip, "link", "set", "lo", "up").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w: loopback: %w: %s", ErrLevel, err, out)
	}
	t := &tables{rules: map[[2]string]path{}, hosts: map[string]string{}, doors: map[string]string{}}
	return t, t.apply("")
}

func (t *tables) ways() ways { return t }
func (t *tables) end()       {}

func (t *tables) places(i int) (places, error) {
	host := fmt.Sprint(tablesNet, 1+(i-1)%240)
	gossip := net.JoinHostPort(host, gossipPort)
	return places{
		gossip: gossip, rpc: net.JoinHostPort(host, rpcPort), proxy: net.JoinHostPort(host, proxyPort), admin: net.JoinHostPort(host, adminPort), seed: gossip,
	}, nil
}

func (t *tables) open(m *member) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.hosts[m.name] = hostOf(m.at.gossip)
	if m.at.advertise != "" {
		t.doors[m.name] = m.at.advertise
	}
	return nil
}

func (t *tables) shut(*member) {}

// Set has the kernel lose what a path says.
func (t *tables) Set(from, to string, p path) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.rules[[2]string{from, to}] = p; p == (path{}) {
		delete(t.rules, [2]string{from, to})
	}
	_ = t.apply("") // it was made before; what cannot be made now shows in what the nodes do
}

// Reset has the kernel answer what two nodes say to each other by resets, for a
// moment.
func (t *tables) Reset(a, b string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	var extra strings.Builder
	for _, pair := range [][2]string{{a, b}, {b, a}} {
		fmt.Fprintf(&extra, "-A INPUT -s %s -d %s -p tcp -j REJECT --reject-with tcp-reset\n", t.hosts[pair[0]], t.hosts[pair[1]])
	}
	if a == b || t.hosts[a] == "" || t.hosts[b] == "" || t.apply(extra.String()) != nil {
		return 0
	}
	<-time.After(resetTime)
	_ = t.apply("")
	return 1
}

// apply gives the kernel all rules anew; mu is held.
func (t *tables) apply(extra string) error {
	var all strings.Builder
	all.WriteString("*filter\n:INPUT ACCEPT [0:0]\n" + extra)
	for pair, p := range t.rules {
		all.WriteString(t.lines(pair[0], pair[1], p))
	}
	all.WriteString("COMMIT\n")
	restore, err := find("iptables-restore")
	if err != nil {
		return err
	}
	cmd := exec.Command(restore)
	cmd.Stdin, cmd.Env = strings.NewReader(all.String()), append(os.Environ(), "XTABLES_LOCKFILE="+os.TempDir()+"/starling-chaos-xtables.lock")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: iptables-restore: %w: %s", ErrLevel, err, out)
	}
	return nil
}

// lines are the rules of one way. Where relays stand between, what a node sends passes
// the other's door, and on a connection that the other one has opened its own.
func (t *tables) lines(from, to string, p path) string {
	a, b := t.hosts[from], t.hosts[to]
	if a == "" || b == "" || !p.Off && p.Loss == 0 {
		return ""
	}
	door, relayed := t.doors[to]
	if !relayed {
		return drop(a, b, p)
	}
	text := drop(a, door, p)
	if p.TCP || !p.UDP {
		p.TCP, p.UDP = true, false
		text += drop(t.doors[from], b, p)
	}
	return text
}

// drop is the rule that loses what one address sends another.
func drop(from, to string, p path) string {
	rule := fmt.Sprintf("-A INPUT -s %s -d %s", from, to)
	if p.TCP {
		rule += " -p tcp"
	} else if p.UDP {
		rule += " -p udp"
	}
	if !p.Off {
		rule += fmt.Sprintf(" -m statistic --mode random --probability %.4f", p.Loss)
	}
	return rule + " -j DROP\n"
}
