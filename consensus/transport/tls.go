package transport

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"time"
)

const (
	keysEvery  = 3 * time.Second // between two looks at the files
	maxKeyFile = 1 << 20         // bytes
	nodeURI    = "starling:node:"
)

// keyring is the certificates of a node; nil where TLS is off. Files that
// change are read again; what cannot be used leaves the old ones in place.
type keyring struct {
	files TLS
	now   func() time.Time
	held  atomic.Pointer[held]
	told  string // the fault of the last look; keysLoop's after the start
}

type held struct {
	sum    [sha256.Size]byte
	config *tls.Config // as server and as client
}

func newKeyring(files TLS) (*keyring, error) {
	if !files.on() {
		return nil, nil
	}
	k := &keyring{files: files, now: time.Now}
	_, err := k.load()
	return k, err
}

// load puts what the files hold in force, and tells whether that is new.
func (k *keyring) load() (changed bool, err error) {
	var parts [3][]byte
	for i, name := range []string{k.files.CAFile, k.files.CertFile, k.files.KeyFile} {
		if parts[i], err = readKeyFile(name); err != nil {
			return false, err
		}
	}
	sum := sha256.Sum256(bytes.Join(parts[:], []byte{0}))
	if h := k.held.Load(); h != nil && h.sum == sum {
		return false, nil
	}
	pair, err := tls.X509KeyPair(parts[1], parts[2])
	if err != nil {
		return false, fmt.Errorf("%s and %s: %w", k.files.CertFile, k.files.KeyFile, err)
	}
	ca := x509.NewCertPool()
	if !ca.AppendCertsFromPEM(parts[0]) {
		return false, fmt.Errorf("%s holds no certificate", k.files.CAFile)
	}
	k.held.Store(&held{sum: sum, config: k.config(pair, ca)})
	return true, nil
}

// config serves both ends. Peers are known by id and not by host, so the
// certificate's chain and dates are verified here, in both directions alike,
// and its names by checkNames once the peer has said who it is.
func (k *keyring) config(own tls.Certificate, ca *x509.CertPool) *tls.Config {
	return &tls.Config{
		Certificates:       []tls.Certificate{own},
		MinVersion:         tls.VersionTLS13,
		ClientAuth:         tls.RequireAnyClientCert,
		InsecureSkipVerify: true, // of host names; VerifyConnection does the rest
		VerifyConnection: func(state tls.ConnectionState) error {
			if len(state.PeerCertificates) == 0 {
				return errors.New("the peer shows no certificate")
			}
			between := x509.NewCertPool()
			for _, c := range state.PeerCertificates[1:] {
				between.AddCert(c)
			}
			_, err := state.PeerCertificates[0].Verify(x509.VerifyOptions{
				Roots: ca, Intermediates: between, CurrentTime: k.now(),
				KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
			})
			return err
		},
		SessionTicketsDisabled: true, // connections live long, and a resumed one would outlive a change of the CA
	}
}

func (k *keyring) server(ctx context.Context, raw net.Conn) (net.Conn, error) {
	if k == nil {
		return raw, nil
	}
	c := tls.Server(raw, k.held.Load().config)
	return c, c.HandshakeContext(ctx)
}

func (k *keyring) client(ctx context.Context, raw net.Conn) (net.Conn, error) {
	if k == nil {
		return raw, nil
	}
	c := tls.Client(raw, k.held.Load().config)
	return c, c.HandshakeContext(ctx)
}

// checkNames holds a certificate to the nodes it names, if it names any, by
// URIs starling:node:ID. One that names none is good for any node.
func checkNames(c net.Conn, node string) error {
	t, ok := c.(*tls.Conn)
	if !ok {
		return nil
	}
	var named []string
	for _, uri := range t.ConnectionState().PeerCertificates[0].URIs {
		if id, ours := strings.CutPrefix(uri.String(), nodeURI); ours {
			named = append(named, id)
		}
		if uri.String() == nodeURI+node {
			return nil
		}
	}
	if named == nil {
		return nil
	}
	return fmt.Errorf("the certificate is for %s, not for node %s", strings.Join(named, ", "), node)
}

func readKeyFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read
	data, err := io.ReadAll(io.LimitReader(f, maxKeyFile+1))
	if err == nil && len(data) > maxKeyFile {
		err = fmt.Errorf("%s is larger than 1 MiB; name a PEM file", name)
	}
	return data, err
}

// keysLoop looks at the files now and then. A fault is told when it stands for
// two looks: three files cannot be written at once.
func (t *Transport) keysLoop() {
	tick := time.NewTicker(keysEvery)
	defer tick.Stop()
	last := ""
	for {
		select {
		case <-t.ctx.Done():
			return
		case <-tick.C:
		}
		changed, err := t.keys.load()
		switch {
		case changed:
			last, t.keys.told = "", ""
			t.log.Info("new certificates in force for peers; open connections keep theirs")
		case err == nil:
			last, t.keys.told = "", ""
		case err.Error() == last && last != t.keys.told:
			t.keys.told = last
			t.log.Warn("certificate files for peers cannot be used; the old ones stay in force", "err", err)
		default:
			last = err.Error()
		}
	}
}
