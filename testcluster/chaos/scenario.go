package chaos

import (
	"embed"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/starling-lb/starling/node/yamlstrict"
	"github.com/starling-lb/starling/testcluster/chaos/history"
	"github.com/starling-lb/starling/testcluster/llm"
)

// Scenario is a file that says what happens to a cluster.
type Scenario struct {
	Name        string        `yaml:"name"`  // the file's, without .yaml
	About       string        `yaml:"about"` // in a sentence
	Nodes       int           `yaml:"nodes"`
	Backends    int           `yaml:"backends"`
	Duration    time.Duration `yaml:"duration"` // until all is healed
	Level       string        `yaml:"level" enum:"any,inside,processes"`
	Consistency string        `yaml:"consistency" enum:"available,strict"`
	Streams     int           `yaml:"streams"` // that a backend takes at a time; 0: no limit
	Queue       int           `yaml:"queue"`   // streams that may wait for a backend
	Logs        int           `yaml:"logs"`    // entries after which a shard's log is cut; 0: as ever, thousands
	Spread      bool          `yaml:"spread"`  // sessions are moved to even out load
	Traffic     Traffic       `yaml:"traffic"`
	Steps       []Step        `yaml:"steps"`
	Nemesis     *Nemesis      `yaml:"nemesis"` // left out: only the steps
}

// Traffic is how much of it there is.
type Traffic struct {
	Rate     float64 `yaml:"rate"`     // requests a second
	Sessions int     `yaml:"sessions"` // at a time
	Retries  int     `yaml:"retries"`  // that a client makes when it is refused
	Trace    string  `yaml:"trace"`    // file of requests whose sizes, and pauses but for the rate, they have; empty: by chance
}

// rows are those of the trace, if there is one.
func (t Traffic) rows() ([]llm.Row, error) {
	if t.Trace == "" {
		return nil, nil
	}
	f, err := os.Open(t.Trace)
	if err != nil {
		return nil, fmt.Errorf("%w: traffic.trace: %w", ErrScenario, err)
	}
	defer f.Close()
	rows, err := llm.ReadTrace(f)
	if err != nil {
		return nil, fmt.Errorf("%w: traffic.trace: %s: %w", ErrScenario, t.Trace, err)
	}
	return rows, nil
}

// Step is one fault.
type Step struct {
	At     time.Duration `yaml:"at"`     // after the traffic began
	For    time.Duration `yaml:"for"`    // then it is undone; 0s: what is over at once
	Fault  history.Kind  `yaml:"fault"`  // one of history's kinds
	Target string        `yaml:"target"` // names, or any, leader, meta, half, all; of backends and nodes alike
	When   string        `yaml:"when" enum:"now,snapshot,step,bootstrap"`

	Over   string        `yaml:"over" enum:"both,tcp,udp"`
	Loss   float64       `yaml:"loss"`   // 0 to 1
	Share  float64       `yaml:"share"`  // 0 to 1, of the packets that are doubled, out of order or corrupt
	By     time.Duration `yaml:"by"`     // a delay, a jump, the period of what flaps
	How    string        `yaml:"how"`    // of a disk: slow, stall, full, fail; of a backend: dead, hung, slow, flap, break
	Factor float64       `yaml:"factor"` // of traffic, or of slowness
	Count  int           `yaml:"count"`  // of what is added
}

// Nemesis makes faults at random.
type Nemesis struct {
	Faults int           `yaml:"faults"` // at a time, at most
	Least  time.Duration `yaml:"least"`  // that one lasts
	Most   time.Duration `yaml:"most"`
	Rest   time.Duration `yaml:"rest"`  // between two of them, about
	Kinds  []string      `yaml:"kinds"` // none: all that undo themselves, but for those that must be named
}

//go:embed scenarios/*.yaml
var files embed.FS

// ErrScenario is what is wrapped where a scenario makes no sense.
var ErrScenario = errors.New("bad scenario")

// Names are the scenarios that there are, by name.
func Names() []string {
	list, err := files.ReadDir("scenarios")
	if err != nil {
		panic("BUG: " + err.Error())
	}
	var names []string
	for _, f := range list {
		names = append(names, strings.TrimSuffix(f.Name(), ".yaml"))
	}
	return names
}

// Load reads a scenario: one of Names, or a file.
func Load(name string) (Scenario, error) {
	if !strings.ContainsAny(name, "/.") {
		data, err := files.ReadFile("scenarios/" + name + ".yaml")
		if err != nil {
			return Scenario{}, fmt.Errorf("%w: there is none called %q; write a file's path or one of %s", ErrScenario, name, strings.Join(Names(), ", "))
		}
		return parse(name, data)
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return Scenario{}, fmt.Errorf("%w: %w", ErrScenario, err)
	}
	base := name[strings.LastIndex(name, "/")+1:]
	return parse(strings.TrimSuffix(base, ".yaml"), data)
}

func parse(name string, data []byte) (Scenario, error) {
	s := Scenario{
		Name: name, Nodes: 3, Backends: 4, Duration: 20 * time.Second, Level: "any", Consistency: "available", Queue: 50,
		Traffic: Traffic{Rate: 20, Sessions: 30},
	}
	form := yamlstrict.Form{Elements: []any{
		Step{Target: "any", When: "now", Over: "both", Share: 0.2, Factor: 1, Count: 1},
		Nemesis{Faults: 2, Least: 3 * time.Second, Most: 12 * time.Second, Rest: 2 * time.Second},
	}, Env: func(string) (string, bool) { return "", false }}
	report, read := form.Decode(name, data, &s)
	if read {
		s.check(report.Fault)
	}
	var errs []error
	for _, f := range report.Faults() {
		errs = append(errs, fmt.Errorf("%w: %s", ErrScenario, f.String()))
	}
	return s, errors.Join(errs...)
}

// MostNodes is how many there can be at first.
const MostNodes = 32

const mostBackends = 32

func (s *Scenario) check(fault func(key, format string, args ...any)) {
	if s.Nodes < 1 || s.Nodes > MostNodes {
		fault("nodes", "%d is out of range; write 1 to %d", s.Nodes, MostNodes)
	}
	if s.Backends < 1 || s.Backends > mostBackends {
		fault("backends", "%d is out of range; write 1 to %d", s.Backends, mostBackends)
	}
	for i, st := range s.Steps {
		key := fmt.Sprintf("steps[%d]", i)
		if _, ok := deeds()[st.Fault]; !ok {
			fault(key+".fault", "%q is no fault; write one of %s", st.Fault, strings.Join(kinds(), ", "))
		}
		for name, share := range map[string]float64{"loss": st.Loss, "share": st.Share} {
			if share > 1 {
				fault(key+"."+name, "%v is no share; write a number from 0 to 1", share)
			}
		}
		if hows := hows(st.Fault); len(hows) > 0 && !slices.Contains(hows, st.How) {
			fault(key+".how", "%q is none; write one of %s", st.How, strings.Join(hows, ", "))
		}
	}
	if s.Nemesis == nil {
		return
	}
	if s.Nemesis.Faults < 1 || s.Nemesis.Least > s.Nemesis.Most {
		fault("nemesis", "makes no faults, or shorter ones than it shall; write faults: 1 or more, least and most in this order")
	}
	for _, k := range s.Nemesis.Kinds {
		if !slices.Contains(named(), k) {
			fault("nemesis.kinds", "%q is no fault that comes at random; write some of %s", k, strings.Join(named(), ", "))
		}
	}
}

// relayed tells whether relays must stand between the nodes in any case: a kernel can
// lose, and seldom do more.
func (s Scenario) relayed() bool {
	more := []history.Kind{history.Delay, history.Duplicate, history.Reorder, history.Corrupt}
	if slices.ContainsFunc(s.Steps, func(st Step) bool { return slices.Contains(more, st.Fault) }) {
		return true
	}
	if s.Nemesis == nil {
		return false
	}
	list := s.Nemesis.Kinds
	if len(list) == 0 {
		list = random()
	}
	return slices.ContainsFunc(list, func(k string) bool { return slices.Contains(more, history.Kind(k)) })
}

// hows are the ways in which a fault may be; none: there is one.
func hows(k history.Kind) []string {
	switch k {
	case history.Disk:
		return []string{"slow", "stall", "full", "fail"}
	case history.Backend:
		return []string{"dead", "hung", "slow", "flap", "break"}
	}
	return nil
}
