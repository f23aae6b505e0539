package node

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// selfSigned writes a certificate and its key, and returns their paths.
func selfSigned(t *testing.T, name string) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	form := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	signed, err := x509.CreateCertificate(rand.Reader, form, form, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(file, kind string, data []byte) string {
		path := filepath.Join(dir, name+file)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: data}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	return write(".crt", "CERTIFICATE", signed), write(".key", "PRIVATE KEY", der)
}

func TestCertificates(t *testing.T) {
	cert, key := selfSigned(t, "a")
	_, other := selfSigned(t, "b")
	for _, tt := range []struct {
		what, cert, key string
		want            string // KEY: part of the text
	}{
		{"a pair", cert, key, ""},
		{"another's key", cert, other, "admin.tls.key_file: is not the key of"},
		{"a certificate for a key", cert, cert, "admin.tls.key_file: is not the key of"},
		{"a key for a certificate", key, key, "admin.tls.cert_file: holds no certificate"},
		{"no file", cert, key + ".gone", "admin.tls.key_file: cannot be read"},
		{"a directory", t.TempDir(), key, "admin.tls.cert_file: is no regular file"},
	} {
		text := fmt.Sprintf("admin: {tls: {cert_file: %q, key_file: %q}}\n%s", tt.cert, tt.key, smallest)
		got := faults(t, text)
		if tt.want == "" {
			if got != nil {
				t.Errorf("%s: %v, want no fault", tt.what, got)
			}
			continue
		}
		where, what, _ := strings.Cut(tt.want, ": ")
		if len(got) != 1 || got[0].Key != where || !strings.Contains(got[0].Text, what) {
			t.Errorf("%s: %v, want one fault %q", tt.what, got, tt.want)
		}
	}
}

// The same for listeners and backends, and the authorities that they name.
func TestAuthorities(t *testing.T) {
	cert, key := selfSigned(t, "a")
	_, other := selfSigned(t, "b")
	for _, tt := range []struct{ what, listener, backend, want string }{
		{"all there", `{cert_file: CERT, key_file: KEY, client_ca_file: CERT}`, `{ca_file: CERT, cert_file: CERT, key_file: KEY, server_name: b.test}`, ""},
		{"an authority alone", "{}", `{ca_file: CERT}`, ""},
		{"another's key", `{cert_file: CERT, key_file: OTHER}`, "{}", "listeners[0].tls.key_file: is not the key of"},
		{"a key for authorities", `{cert_file: CERT, key_file: KEY, client_ca_file: KEY}`, "{}", "listeners[0].tls.client_ca_file: holds no certificate"},
		{"another's key out", "{}", `{cert_file: CERT, key_file: OTHER}`, "pools.llm.backend.tls.key_file: is not the key of"},
		{"a key for authorities out", "{}", `{ca_file: KEY}`, "pools.llm.backend.tls.ca_file: holds no certificate"},
	} {
		text := fmt.Sprintf("listeners: [{address: '127.0.0.1:8080', tls: %s}]\npools: {llm: {backends: ['https://127.0.0.1:9001'], backend: {tls: %s}}}\n", tt.listener, tt.backend)
		got := faults(t, strings.NewReplacer("CERT", cert, "KEY", key, "OTHER", other).Replace(text))
		where, what, _ := strings.Cut(tt.want, ": ")
		if tt.want == "" && got != nil || tt.want != "" && (len(got) != 1 || got[0].Key != where || !strings.Contains(got[0].Text, what)) {
			t.Errorf("%s: %v, want %q", tt.what, got, tt.want)
		}
	}
}

func TestTokenFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := faults(t, fmt.Sprintf("admin: {address: ':9901', token_file: %q}\n%s", file, smallest)); got != nil {
		t.Errorf("an open address with a token: %v, want no fault", got)
	}
	if got := faults(t, "admin: {address: '[::1]:9901'}\n"+smallest); got != nil {
		t.Errorf("loopback without a token: %v, want no fault", got)
	}
	got := faults(t, fmt.Sprintf("admin: {address: ':9901', token_file: %q}\n%s", file+".gone", smallest))
	if len(got) != 1 || got[0].Key != "admin.token_file" {
		t.Errorf("a token file that is gone: %v, want one fault", got)
	}
}
