package transport

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// authority signs certificates of a test.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{}
	a.cert = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	a.key = newKey(t)
	a.file = filepath.Join(t.TempDir(), "ca.pem")
	writePEM(t, a.file, "CERTIFICATE", a.sign(t, a.cert, a.key))
	return a
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func (a *authority) sign(t *testing.T, c *x509.Certificate, k *ecdsa.PrivateKey) []byte {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, c, a.cert, &k.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

// issue writes a certificate and its key; ends is from now.
func (a *authority) issue(t *testing.T, ends time.Duration, nodes ...string) TLS {
	t.Helper()
	c := &x509.Certificate{SerialNumber: big.NewInt(2), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(ends)}
	for _, n := range nodes {
		c.URIs = append(c.URIs, &url.URL{Scheme: "starling", Opaque: "node:" + n})
	}
	k := newKey(t)
	dir := t.TempDir()
	f := TLS{CAFile: a.file, CertFile: filepath.Join(dir, "cert.pem"), KeyFile: filepath.Join(dir, "key.pem")}
	writePEM(t, f.CertFile, "CERTIFICATE", a.sign(t, c, k))
	der, err := x509.MarshalECPrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	writePEM(t, f.KeyFile, "EC PRIVATE KEY", der)
	return f
}

func writePEM(t *testing.T, name, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(name, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}

func with(files TLS) change { return func(c *Config, _ *Options) { c.TLS = files } }

// TestWhoMayConnect tries every kind of stranger in both directions: as the one
// who calls, and as the one who is called.
func TestWhoMayConnect(t *testing.T) {
	ours, theirs := newAuthority(t), newAuthority(t)
	for _, c := range []struct {
		name  string
		files TLS
		ok    bool
	}{
		{"of the CA", ours.issue(t, time.Hour), true},
		{"of the CA, for this node", ours.issue(t, time.Hour, "x", "z"), true},
		{"of the CA, for another node", ours.issue(t, time.Hour, "y"), false},
		{"without a certificate", TLS{}, false},
		{"expired", ours.issue(t, -time.Minute), false},
		{"of another cluster", theirs.issue(t, time.Hour), false},
		{"of another cluster that trusts ours", TLS{ours.file, theirs.issue(t, time.Hour).CertFile, ""}, false},
	} {
		if c.files.CertFile != "" && c.files.KeyFile == "" {
			c.files.KeyFile = strings.TrimSuffix(c.files.CertFile, "cert.pem") + "key.pem"
		}
		t.Run(c.name, func(t *testing.T) {
			at := &addresses{}
			good := newPeer(t, at, "good", with(ours.issue(t, time.Hour)))
			x := newPeer(t, at, "x", with(c.files))
			echo(good, "echo", Service{})
			echo(x, "echo", Service{})
			good.up(t)
			x.up(t)
			if _, err := x.Call(t.Context(), "good", "echo", nil); (err == nil) != c.ok {
				t.Errorf("calling: %v", err)
			}
			if _, err := good.Call(t.Context(), "x", "echo", nil); (err == nil) != c.ok {
				t.Errorf("called: %v", err)
			}
			if !c.ok {
				eventually(t, logged(good.log, "a peer's connection was refused"))
			}
		})
	}
}

// TestWhatIsWrongIsSaid has each side's log name the fault, the one to blame and
// what to write, and a node say by itself what is wrong with its own files.
func TestWhatIsWrongIsSaid(t *testing.T) {
	ours, theirs := newAuthority(t), newAuthority(t)
	past, foreign := ours.issue(t, -time.Minute), theirs.issue(t, time.Hour)
	mixed := foreign
	mixed.CAFile = ours.file
	refused := []string{"code=certificate", "does not take this node's certificate"}
	for _, c := range []struct {
		name       string
		files      TLS
		own, other []string // what x's log says, and good's
	}{
		{"expired", past, append(refused, badOwn, "was good until"), []string{"code=certificate", "has expired"}},
		{"of another CA", mixed, append(refused, badOwn, "by "+ours.file), []string{"code=certificate", "unknown authority", "ca_file"}},
		{"of another cluster", foreign, append(refused, "unknown authority"), append(refused, "unknown authority")},
		{"none", TLS{}, []string{"the caller speaks TLS"}, []string{"code=hello", "does not speak TLS", "on both or none"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			at := &addresses{}
			good := newPeer(t, at, "good", with(ours.issue(t, time.Hour))).up(t)
			x := newPeer(t, at, "x", with(c.files)).up(t)
			for _, call := range []func() error{
				func() error { _, err := x.Call(t.Context(), "good", "echo", nil); return err },
				func() error { _, err := good.Call(t.Context(), "x", "echo", nil); return err },
			} {
				if call() == nil {
					t.Fatal("it was let in")
				}
			}
			for _, part := range c.own {
				eventually(t, logged(x.log, part))
			}
			for _, part := range c.other {
				eventually(t, logged(good.log, part))
			}
			if good.log.has(badOwn) {
				t.Errorf("a good certificate is said to be bad:\n%s", good.log)
			}
		})
	}
}

// TestNewFilesComeIntoForce, broken ones do not.
func TestNewFilesComeIntoForce(t *testing.T) {
	old, next := newAuthority(t), newAuthority(t)
	files := old.issue(t, time.Hour)
	k, err := newKeyring(files)
	if err != nil {
		t.Fatal(err)
	}
	first := k.held.Load()
	if changed, err := k.load(); changed || err != nil {
		t.Errorf("nothing changed: %v, %v", changed, err)
	}
	if err := os.WriteFile(files.CertFile, []byte("broken"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := k.load(); err == nil || k.held.Load() != first {
		t.Errorf("a broken file came into force: %v", err)
	}
	fresh := next.issue(t, time.Hour)
	for to, from := range map[string]string{files.CAFile: fresh.CAFile, files.CertFile: fresh.CertFile, files.KeyFile: fresh.KeyFile} {
		b, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if changed, err := k.load(); !changed || err != nil || k.held.Load() == first {
		t.Errorf("the new files are not in force: %v, %v", changed, err)
	}
}

func TestUnusableFilesAreNamed(t *testing.T) {
	ca := newAuthority(t)
	good := ca.issue(t, time.Hour)
	other := ca.issue(t, time.Hour)
	for _, c := range []struct {
		files TLS
		want  string
	}{
		{TLS{"/nowhere/ca", good.CertFile, good.KeyFile}, "/nowhere/ca"},
		{TLS{good.KeyFile, good.CertFile, good.KeyFile}, good.KeyFile},
		{TLS{good.CAFile, good.CertFile, other.KeyFile}, other.KeyFile},
	} {
		if _, err := newKeyring(c.files); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c.files, err)
		}
	}
}
