package proxy

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// authority signs certificates for a test.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	next int64
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, next: 1}
	form := &x509.Certificate{
		Subject: pkix.Name{CommonName: t.Name()}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, key := a.sign(form)
	a.key = key
	a.cert, _ = x509.ParseCertificate(der)
	return a
}

func (a *authority) sign(form *x509.Certificate) ([]byte, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	form.SerialNumber, form.NotBefore, form.NotAfter = big.NewInt(a.next), time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	a.next++
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = form, key
	}
	der, err := x509.CreateCertificate(rand.Reader, form, parent, &key.PublicKey, signer)
	if err != nil {
		a.t.Fatal(err)
	}
	return der, key
}

// issue makes a certificate for names and addresses, good for both sides.
func (a *authority) issue(names ...string) (cert, key []byte) {
	a.t.Helper()
	form := &x509.Certificate{
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, n := range names {
		if ip := net.ParseIP(n); ip != nil {
			form.IPAddresses = append(form.IPAddresses, ip)
		} else {
			form.DNSNames = append(form.DNSNames, n)
		}
	}
	der, private := a.sign(form)
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		a.t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})
}

func (a *authority) pair(names ...string) tls.Certificate {
	a.t.Helper()
	p, err := tls.X509KeyPair(a.issue(names...))
	if err != nil {
		a.t.Fatal(err)
	}
	return p
}

// pem is the authority's own certificate.
func (a *authority) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

func (a *authority) pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(a.cert)
	return p
}

// files are certificate files of a test.
type files struct {
	t   *testing.T
	dir string
}

func newFiles(t *testing.T) files { return files{t, t.TempDir()} }

// put replaces a file in one step, and returns its path.
func (f files) put(name string, data []byte) string {
	f.t.Helper()
	path := filepath.Join(f.dir, name)
	if err := os.WriteFile(path+".new", data, 0o600); err != nil {
		f.t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		f.t.Fatal(err)
	}
	return path
}

// serve writes a new certificate for 127.0.0.1 and t.test, and its key.
func (f files) serve(a *authority) ListenerTLS {
	f.t.Helper()
	cert, key := a.issue("127.0.0.1", "t.test")
	return ListenerTLS{CertFile: f.put("crt", cert), KeyFile: f.put("key", key)}
}
