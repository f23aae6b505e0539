package proxy

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"sync/atomic"
	"time"
)

// ListenerTLS has clients come by TLS, where it names a certificate.
type ListenerTLS struct {
	CertFile     string `yaml:"cert_file"`      // PEM, the chain
	KeyFile      string `yaml:"key_file"`       // PEM
	ClientCAFile string `yaml:"client_ca_file"` // PEM; clients must show a certificate of these; empty: none is asked for
}

// Validate reports every fault by the key it concerns.
func (c ListenerTLS) Validate(fault func(key, format string, args ...any)) {
	switch {
	case (c.CertFile == "") != (c.KeyFile == ""):
		fault("tls", "needs cert_file and key_file, or neither")
	case c.CertFile == "" && c.ClientCAFile != "":
		fault("tls.client_ca_file", "is set, but no certificate of the listener's own; write cert_file and key_file too")
	}
}

// BackendTLS is how backends with an https URL are spoken to.
type BackendTLS struct {
	CAFile     string `yaml:"ca_file"`     // PEM; who may have signed a backend's certificate; empty: whom the system trusts
	CertFile   string `yaml:"cert_file"`   // PEM, shown to backends that ask; empty: none
	KeyFile    string `yaml:"key_file"`    // PEM
	ServerName string `yaml:"server_name"` // asked for and verified; empty: the host of the URL
}

// Validate reports every fault by the key it concerns.
func (c BackendTLS) Validate(fault func(key, format string, args ...any)) {
	if (c.CertFile == "") != (c.KeyFile == "") {
		fault("tls", "needs cert_file and key_file, or neither")
	}
}

const (
	keysEvery  = 3 * time.Second // between two looks at the files of certificates
	maxKeyFile = 1 << 20         // bytes

	maxSessions = 1024 // of TLS that a pool keeps to take up again, one for each backend
)

// keyring is the certificates of a listener, or of a pool's backends. Files
// that change are read again; what cannot be used leaves the old ones in place.
type keyring struct {
	of      string // what it belongs to, as the configuration names it
	cert    string // files; empty: none
	key     string
	ca      string
	build   func(own []tls.Certificate, ca *x509.CertPool) *tls.Config
	serves  bool                       // clients come by it
	config  atomic.Pointer[tls.Config] // connections keep the one they began with
	tickets tickets                    // of a listener's
	good    atomic.Bool                // the files hold what is in force
	ends    atomic.Int64               // when the certificate expires, in s since 1970; 0: there is none

	sum   [sha256.Size]byte // of the files in force; the rest is lookLoop's after the start
	fault string            // what was wrong with the files at the last look
	told  string            // what of it was logged
}

func listenerKeys(c ListenerConfig) (*keyring, error) {
	if c.TLS.CertFile == "" {
		return nil, nil
	}
	k := &keyring{serves: true, of: "listener " + c.Address, cert: c.TLS.CertFile, key: c.TLS.KeyFile, ca: c.TLS.ClientCAFile}
	k.build = func(own []tls.Certificate, ca *x509.CertPool) *tls.Config {
		t := commonTLS(own)
		if ca != nil {
			t.ClientAuth, t.ClientCAs = tls.RequireAndVerifyClientCert, ca
		}
		return t
	}
	return k, k.open()
}

func backendKeys(pool string, c BackendTLS) (*keyring, error) {
	k := &keyring{of: "pool " + pool, cert: c.CertFile, key: c.KeyFile, ca: c.CAFile}
	k.build = func(own []tls.Certificate, ca *x509.CertPool) *tls.Config {
		t := commonTLS(own)
		t.RootCAs = ca
		t.ClientSessionCache = tls.NewLRUClientSessionCache(maxSessions) // a new one: no session outlives a change of authorities
		return t
	}
	return k, k.open()
}

// sessions are those of one backend among its pool's: another one could not take
// them up, though it goes by the same server name.
type sessions struct {
	of  tls.ClientSessionCache
	key string
}

// Get implements tls.ClientSessionCache.
func (s sessions) Get(name string) (*tls.ClientSessionState, bool) {
	return s.of.Get(s.key + " " + name)
}

// Put implements tls.ClientSessionCache.
func (s sessions) Put(name string, state *tls.ClientSessionState) { s.of.Put(s.key+" "+name, state) }

func commonTLS(own []tls.Certificate) *tls.Config {
	return &tls.Config{
		Certificates: own, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"},
		DynamicRecordSizingDisabled: true, // one read of ours is one write: records of a packet each would make it many
	}
}

// open reads the files for the first time.
func (k *keyring) open() error {
	files, err := k.read()
	if err == nil {
		err = k.load(files)
	}
	if err != nil {
		return fmt.Errorf("certificates of %s: %w", k.of, err)
	}
	return nil
}

// look reads the files again. A fault is told when it stands for two looks:
// certificate and key are two files, which nobody can write at once.
func (k *keyring) look(log *slog.Logger) {
	files, err := k.read()
	if err == nil && files.sum() == k.sum {
		k.fault, k.told = "", ""
		k.good.Store(true)
		return
	}
	if err == nil {
		err = k.load(files)
	}
	if err == nil {
		k.fault, k.told = "", ""
		log.Info("new certificates in force", "of", k.of)
		return
	}
	if text := err.Error(); text != k.fault {
		k.fault = text
	} else if text != k.told {
		k.told = text
		k.good.Store(false)
		log.Warn("certificate files cannot be used; the old ones stay in force", "of", k.of, "err", err)
	}
}

// keyFiles is what the files hold; nil where there is none.
type keyFiles struct{ cert, key, ca []byte }

func (f keyFiles) sum() [sha256.Size]byte {
	return sha256.Sum256(bytes.Join([][]byte{f.cert, f.key, f.ca}, []byte{0}))
}

func (k *keyring) read() (f keyFiles, err error) {
	if f.cert, err = readKeyFile(k.cert); err != nil {
		return f, err
	}
	if f.key, err = readKeyFile(k.key); err != nil {
		return f, err
	}
	f.ca, err = readKeyFile(k.ca)
	return f, err
}

func readKeyFile(path string) ([]byte, error) {
	if path == "" {
		return nil, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read
	data, err := io.ReadAll(io.LimitReader(f, maxKeyFile+1))
	if err == nil && len(data) > maxKeyFile {
		err = fmt.Errorf("%s is larger than 1 MiB; name a PEM file", path)
	}
	return data, err
}

// load puts what the files hold in force.
func (k *keyring) load(f keyFiles) error {
	var own []tls.Certificate
	var ends int64
	if f.cert != nil {
		pair, err := tls.X509KeyPair(f.cert, f.key)
		if err != nil {
			return fmt.Errorf("%s and %s: %w", k.cert, k.key, err)
		}
		own, ends = []tls.Certificate{pair}, pair.Leaf.NotAfter.Unix()
	}
	var ca *x509.CertPool
	if f.ca != nil {
		if ca = x509.NewCertPool(); !ca.AppendCertsFromPEM(f.ca) {
			return fmt.Errorf("%s holds no certificate", k.ca)
		}
	}
	config := k.build(own, ca)
	if k.sum = f.sum(); k.serves {
		k.tickets.begin(config, k.sum, time.Now())
	}
	k.config.Store(config)
	k.ends.Store(ends)
	k.good.Store(true)
	return nil
}

// keyrings are those in force that have files.
func (s *Server) keyrings() (all []*keyring) {
	now := s.now.Load()
	for _, l := range now.listeners {
		all = append(all, l.gate.Load().keys)
	}
	for _, p := range now.pools {
		all = append(all, p.keys)
	}
	return slices.DeleteFunc(all, func(k *keyring) bool { return k == nil || k.cert+k.ca == "" })
}

// keysLoop has every keyring look at its files now and then.
func (s *Server) keysLoop() {
	tick := time.NewTicker(s.keysEvery)
	defer tick.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-tick.C:
			for _, k := range s.keyrings() {
				k.look(s.log)
				k.tickets.turn(time.Now())
			}
		}
	}
}
