package testcluster_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/starling-lb/starling/consensus/transport"
	"github.com/starling-lb/starling/node"
	"github.com/starling-lb/starling/node/api"
	"github.com/starling-lb/starling/testcluster"
)

// authority signs certificates for nodes.
type authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	a := &authority{dir: t.TempDir()}
	a.cert, a.key = a.sign(t, name, true)
	return a
}

// sign makes a certificate of a's, or its own, and writes it down.
func (a *authority) sign(t *testing.T, name string, ca bool) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, IsCA: ca, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	by, with := a.cert, a.key
	if ca {
		by, with = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, by, key.Public(), with)
	if err != nil {
		t.Fatal(err)
	}
	if c, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{name + ".crt": {Type: "CERTIFICATE", Bytes: der}, name + ".key": {Type: "PRIVATE KEY", Bytes: raw}} {
		if err := os.WriteFile(filepath.Join(a.dir, file), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return c, key
}

// files is a node's section, with a certificate of its own.
func (a *authority) files(t *testing.T, node string) transport.TLS {
	t.Helper()
	a.sign(t, node, false)
	at := func(file string) string { return filepath.Join(a.dir, file) }
	return transport.TLS{CAFile: at(a.cert.Subject.CommonName + ".crt"), CertFile: at(node + ".crt"), KeyFile: at(node + ".key")}
}

// TestMutualTLS: nodes with certificates of one authority are a cluster; one with
// another's hears of it by gossip, and is neither let in nor founds its own.
func TestMutualTLS(t *testing.T) {
	ours, theirs := newAuthority(t, "ours"), newAuthority(t, "theirs")
	c := agreeing(t, 2, func(cfg *node.Config) { cfg.Cluster.TLS = ours.files(t, cfg.Node.Name) })
	stranger, err := testcluster.Start(t.Context(), testcluster.Options{Backends: 1, Config: func(cfg *node.Config) {
		sessionsOn(cfg)
		cfg.Node.Name = "stranger"
		cfg.Cluster.Bind, cfg.Cluster.RPC, cfg.Cluster.BootstrapExpect = "127.0.0.1:0", "127.0.0.1:0", 1
		cfg.Cluster.Seeds = []string{c.Node(0).GossipAddr()}
		cfg.Cluster.TLS = theirs.files(t, "stranger")
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, stranger) })
	eventually(t, patience, func() string {
		resp, err := http.Get(stranger.Node(0).AdminURL() + "/readyz")
		if err != nil {
			return err.Error()
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil || !strings.Contains(string(body), "certificate") || !strings.Contains(string(body), "unknown authority") {
			return string(body)
		}
		return ""
	})
	http.DefaultClient.CloseIdleConnections()
	var s api.Status
	if err := admin(t, stranger.Node(0)).Get(t.Context(), &s, "status"); err != nil || s.Cluster.ID != "" {
		t.Errorf("the stranger is of cluster %q (%v)", s.Cluster.ID, err)
	}
}
