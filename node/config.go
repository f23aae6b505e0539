package node

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/starling-lb/starling/node/admin"
	"github.com/starling-lb/starling/node/quorum"
	"github.com/starling-lb/starling/node/yamlstrict"
	"github.com/starling-lb/starling/proxy"
	"github.com/starling-lb/starling/proxy/backend"
)

// Config is the configuration file. It only lists the sections: each belongs
// to the room that it configures, with its defaults and its rules.
type Config struct {
	Node      Self                        `yaml:"node"`
	Cluster   ClusterConfig               `yaml:"cluster"`
	Shards    quorum.Config               `yaml:"shards"`
	Admin     admin.Config                `yaml:"admin"`
	Log       LogConfig                   `yaml:"log"`
	AccessLog proxy.AccessLogConfig       `yaml:"access_log"`
	Tracing   proxy.TracingConfig         `yaml:"tracing"`
	Timeouts  proxy.ClientTimeouts        `yaml:"timeouts"`
	Reload    ReloadConfig                `yaml:"reload"`
	Listeners []proxy.ListenerConfig      `yaml:"listeners"`
	Pools     map[string]proxy.PoolConfig `yaml:"pools"`
}

// Self is what a node is by itself.
type Self struct {
	Name         string        `yaml:"name"`          // default: the host's
	Zone         string        `yaml:"zone"`          // nodes of one zone may fail together; empty: all are in one
	DataDir      string        `yaml:"data_dir"`      // of this node alone
	DrainTimeout time.Duration `yaml:"drain_timeout"` // what still runs then is cut; 0s: no limit
}

// LogConfig says what is logged, and how, to standard error.
type LogConfig struct {
	Level  string `yaml:"level" enum:"debug,info,warn,error"`
	Format string `yaml:"format" enum:"text,json"`
}

// DefaultConfig holds every default. No listener and no pool can be guessed.
func DefaultConfig() Config {
	return Config{
		Node:      Self{DataDir: "./starling-data", DrainTimeout: 2 * time.Minute},
		Shards:    quorum.DefaultConfig(),
		Admin:     admin.DefaultConfig(),
		Log:       LogConfig{Level: "info", Format: "text"},
		AccessLog: proxy.DefaultAccessLog(),
		Tracing:   proxy.DefaultTracing(),
		Timeouts:  proxy.DefaultClientTimeouts(),
		Reload:    ReloadConfig{Watch: true},
	}
}

// Fault is one thing that is wrong with a file.
type Fault = yamlstrict.Fault

// FaultsError holds all that is wrong with a file, by line.
type FaultsError struct{ Faults []Fault }

func (e *FaultsError) Error() string {
	lines := make([]string, len(e.Faults))
	for i, f := range e.Faults {
		lines[i] = f.String()
	}
	return strings.Join(lines, "\n")
}

const maxFile = 4 << 20 // bytes of a configuration

// Load reads and checks a file. Its error is always a *FaultsError.
func Load(path string) (Config, error) { return load(path, nil) }

// load is Load where more may be wrong than a file says by itself; nil: nothing.
func load(path string, more func(Config, fault)) (Config, error) {
	data, err := yamlstrict.ReadSmall(path, maxFile)
	if err != nil {
		text := fmt.Sprintf("%v; name a file that this process can read", err)
		return Config{}, &FaultsError{[]Fault{{File: path, Line: 1, Key: "yaml", Text: text}}}
	}
	return parseFor(path, data, os.LookupEnv, more)
}

// Parse is Load for what was read from the file called name; env looks up
// ${VARIABLE}. What the file leaves to a rule is filled in: node.name, ids of
// backends, routes of a listener in front of the only pool.
func Parse(name string, data []byte, env func(string) (string, bool)) (Config, error) {
	return parseFor(name, data, env, nil)
}

func parseFor(name string, data []byte, env func(string) (string, bool), more func(Config, fault)) (Config, error) {
	c := DefaultConfig()
	form := yamlstrict.Form{Elements: elements(), Unbuilt: notYet(), Env: env}
	report, read := form.Decode(name, data, &c)
	if read {
		c.complete()
		check(c, report)
		if more != nil {
			more(c, report.Fault)
		}
	}
	if faults := report.Faults(); len(faults) > 0 {
		return Config{}, &FaultsError{faults}
	}
	return c, nil
}

// elements holds the defaults of what stands in lists and maps.
func elements() []any {
	return []any{proxy.DefaultListener(), proxy.DefaultRoute(), proxy.DefaultPool(), proxy.DefaultSession(), backend.DefaultConfig()}
}

// complete fills in what follows from the rest of the file or from the host.
func (c *Config) complete() {
	if c.Node.Name == "" {
		c.Node.Name, _ = os.Hostname() // check refuses a node without a name
	}
	c.Cluster.complete()
	for _, pool := range c.Pools {
		for i, b := range pool.Backends {
			if at, err := backend.ParseURL(b.URL); err == nil && b.ID == "" {
				pool.Backends[i].ID = at.Dial
			}
		}
	}
	if len(c.Pools) != 1 {
		return
	}
	for name := range c.Pools {
		all := proxy.DefaultRoute()
		all.Pool = name
		for i := range c.Listeners {
			if len(c.Listeners[i].Routes) == 0 {
				c.Listeners[i].Routes = []proxy.RouteConfig{all}
			}
		}
	}
}

// Print writes the configuration with every key. It is a file that loads to
// the equal Config.
func Print(w io.Writer, c Config) error {
	data, err := yamlstrict.Encode(c)
	if err != nil {
		return err
	}
	if _, err := w.Write(data); err != nil {
		return fmt.Errorf("print configuration: %w", err)
	}
	return nil
}

// Hash tells configurations apart. What differs from node to node by its
// nature, names, directories, own addresses and certificates, and whether it
// keeps replicas or watches its file, does not count: nodes of one cluster are meant to have the
// same hash.
func (c Config) Hash() string {
	c.Node.Name, c.Node.Zone, c.Node.DataDir, c.Admin.Address = "", "", "", ""
	c.Cluster.Bind, c.Cluster.RPC, c.Cluster.Advertise, c.Cluster.Seeds = "", "", "", nil
	c.Cluster.TLS.CertFile, c.Cluster.TLS.KeyFile, c.Shards.Host = "", "", false
	c.Reload = ReloadConfig{}
	c.Listeners = slices.Clone(c.Listeners)
	for i := range c.Listeners {
		c.Listeners[i].Address = ""
	}
	sum := sha256.New()
	if err := Print(sum, c); err != nil {
		panic(fmt.Sprintf("BUG: %v", err))
	}
	return hex.EncodeToString(sum.Sum(nil))[:12]
}
