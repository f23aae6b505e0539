package transport

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"time"
)

// Config says where a node listens for its peers, and whom it takes for one.
type Config struct {
	Address  string `yaml:"rpc"`      // host:port, TCP
	TLS      TLS    `yaml:"tls"`      // mutual; needed where Address is not loopback
	Insecure bool   `yaml:"insecure"` // lets Address be anything without TLS
}

// TLS names the files of mutual TLS. They are read again when they change.
type TLS struct {
	CAFile   string `yaml:"ca_file"`   // PEM; who may have signed a peer's certificate
	CertFile string `yaml:"cert_file"` // PEM, the chain; shown to every peer, calling and called
	KeyFile  string `yaml:"key_file"`  // PEM
}

func (c TLS) on() bool { return c != TLS{} }

// DefaultConfig holds the contract's defaults.
func DefaultConfig() Config { return Config{Address: "127.0.0.1:7947"} }

// Validate reports every fault by the key it concerns.
func (c Config) Validate(fault func(key, format string, args ...any)) {
	host, _, err := net.SplitHostPort(c.Address)
	if err != nil {
		fault("rpc", "%q is no address; write host:port, for example 127.0.0.1:7947", c.Address)
	} else if !loopback(host) && !c.TLS.on() && !c.Insecure {
		fault("rpc", "%s can be reached from other machines, and everybody there could write to this cluster; write tls, or insecure: true", c.Address)
	}
	if t := c.TLS; t.on() && (t.CAFile == "" || t.CertFile == "" || t.KeyFile == "") {
		fault("tls", "needs all of ca_file, cert_file and key_file: both sides show a certificate")
	}
}

func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}

// Resolver says where a node is now.
type Resolver interface {
	// Resolve returns host:port, or an error that says why it is not known.
	Resolve(node string) (address string, err error)
}

// Options is what a transport gets from whoever builds it.
type Options struct {
	Node     string        // own id
	Cluster  func() string // own cluster's id; "" before there is one: only open services are carried then
	Resolver Resolver
	Dial     func(ctx context.Context, network, address string) (net.Conn, error)
	Listen   func(ctx context.Context, network, address string) (net.Listener, error)
	Log      *slog.Logger

	// Gone, if set, hears that a node's process has surely ended: its connections
	// broke, and its machine refuses new ones. A node that is only silent is not
	// reported. It is called from a goroutine of its own, for one node at a time.
	Gone func(node string)
}

func (o Options) check() error {
	switch {
	case o.Node == "" || len(o.Node) > 255:
		return fmt.Errorf("node id %q: want 1 to 255 bytes", o.Node)
	case o.Resolver == nil || o.Cluster == nil || o.Dial == nil || o.Listen == nil || o.Log == nil:
		return errors.New("BUG: a seam of the transport is not filled in")
	}
	return nil
}

// Limits that hold whatever is carried.
const (
	maxConns     = 8192                   // accepted at a time; 256 shards on five nodes take some 2000
	maxGreetings = 512                    // accepted connections that have not said their hello
	maxFromOne   = maxGreetings * 3 / 4   // of them from one host; a machine may run all nodes of a cluster
	greetTime    = 5 * time.Second        // from the connect to the end of hello and reply, TLS included
	openTime     = 2 * time.Second        // of that, for a replica that is about to open
	writeTime    = 5 * time.Second        // for one write of what has gathered
	outboxBytes  = 4 << 20                // gathered and not written, per connection
	refusalEvery = 2 * time.Second        // one logged refusal per code; the rest is debug
	refusalMost  = time.Minute            // where it goes on
	dialRest     = 100 * time.Millisecond // after a dial that failed, so that 64 groups do not each try
)
