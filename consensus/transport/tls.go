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
	chain  []*x509.Certificate
	ca     *x509.CertPool
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
	h := &held{sum: sum, config: k.config(pair, ca), ca: ca}
	for _, der := range pair.Certificate {
		c, err := x509.ParseCertificate(der)
		if err != nil {
			return false, fmt.Errorf("%s: %w", k.files.CertFile, err)
		}
		h.chain = append(h.chain, c)
	}
	k.held.Store(h)
	return true, nil
}

// fault says why peers that have the same authorities refuse this node; nil: they
// do not. Its text stays the same as long as the fault does.
func (k *keyring) fault() error {
	h, now := k.held.Load(), k.now()
	switch c := h.chain[0]; {
	case now.After(c.NotAfter):
		return fmt.Errorf("%s was good until %s", k.files.CertFile, c.NotAfter.Format(time.RFC3339))
	case now.Before(c.NotBefore):
		return fmt.Errorf("%s is good from %s on, says this machine's clock", k.files.CertFile, c.NotBefore.Format(time.RFC3339))
	}
	if err := verify(h.chain, h.ca, now); err != nil {
		return fmt.Errorf("%s, by %s: %w", k.files.CertFile, k.files.CAFile, err)
	}
	return nil
}

// verify looks at a chain, the node's own certificate first, and at its dates.
func verify(chain []*x509.Certificate, ca *x509.CertPool, now time.Time) error {
	if len(chain) == 0 {
		return errors.New("none is shown")
	}
	between := x509.NewCertPool()
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{
		Roots: ca, Intermediates: between, CurrentTime: now,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
	})
	return err
}

// explain says what to do about an answer of TLS that only says what it met with.
func explain(err error) error {
	record, op := (tls.RecordHeaderError{}), (*net.OpError)(nil)
	switch {
	case errors.As(err, &record):
		return &RefusedError{RefusedHello, fmt.Sprintf("the peer does not speak TLS (%v); write cluster.tls on both or none", err)}
	case errors.As(err, &op) && op.Op == "remote error":
		return &RefusedError{RefusedCertificate, fmt.Sprintf("the peer does not take this node's certificate (%v): it wants one that its ca_file has signed, of today", err)}
	}
	return err
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
			if err := verify(state.PeerCertificates, ca, k.now()); err != nil {
				return &RefusedError{RefusedCertificate, fmt.Sprintf("the peer's certificate: %v (ca_file says who may sign)", err)}
			}
			return nil
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

const badOwn = "peers will not take this node's certificate"

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
		text := "certificate files for peers cannot be used; the old ones stay in force"
		if err == nil {
			err, text = t.keys.fault(), badOwn
		}
		if changed {
			t.log.Info("new certificates in force for peers; open connections keep theirs")
		}
		switch {
		case err == nil:
			last, t.keys.told = "", ""
		case err.Error() == last && last != t.keys.told:
			t.keys.told = last
			t.log.Warn(text, "err", err)
		default:
			last = err.Error()
		}
	}
}
