package admin

import (
	"net"
	"os"
	"strconv"
)

// Config says where the admin API listens and who may ask it.
type Config struct {
	Address      string    `yaml:"address"`       // host:port; port 0 takes a free one
	TokenFile    string    `yaml:"token_file"`    // its one line is the token; must be set for an address that is not loopback
	TLS          TLSConfig `yaml:"tls"`           // empty: plain HTTP
	MetricsToken bool      `yaml:"metrics_token"` // /metrics wants the token too
	Pprof        bool      `yaml:"pprof"`         // serves /debug/pprof/
}

// TLSConfig names the certificate of the admin API: both files or none.
type TLSConfig struct {
	CertFile string `yaml:"cert_file"`
	KeyFile  string `yaml:"key_file"`
}

// DefaultConfig listens on loopback, where no token is asked.
func DefaultConfig() Config { return Config{Address: "127.0.0.1:9901"} }

// Validate reports every fault by the key it concerns.
func (c Config) Validate(fault func(key, format string, args ...any)) {
	if _, port, err := net.SplitHostPort(c.Address); err != nil {
		fault("address", "%q is no address to listen on (%v); write host:port, for example 127.0.0.1:9901", c.Address, err)
	} else if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		fault("address", "%q has port %q; write a number from 0 (any free one) to 65535", c.Address, port)
	} else if c.TokenFile == "" && !loopbackAddress(c.Address) {
		fault("token_file", "is missing, and %s can be reached from outside; name a file with a token, or listen on 127.0.0.1", c.Address)
	}
	if (c.TLS.CertFile == "") != (c.TLS.KeyFile == "") {
		fault("tls", "needs cert_file and key_file, or neither")
	}
	readable := func(key, path string) {
		if _, err := os.Stat(path); path != "" && err != nil {
			fault(key, "%v; name a file that this process can read", err)
		}
	}
	readable("token_file", c.TokenFile)
	readable("tls.cert_file", c.TLS.CertFile)
	readable("tls.key_file", c.TLS.KeyFile)
}
