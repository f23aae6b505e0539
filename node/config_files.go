package node

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"strings"

	"github.com/starling-lb/starling/node/admin"
	"github.com/starling-lb/starling/node/discovery"
	"github.com/starling-lb/starling/node/yamlstrict"
	"github.com/starling-lb/starling/proxy"
)

const maxSecretFile = 1 << 20 // bytes of a token, certificate or key

// checkFiles reads the files that a section names, so that a node does not
// find out at start that it cannot.
func checkFiles(c admin.Config, f fault) {
	if c.TokenFile != "" {
		data, ok := readSecret("token_file", c.TokenFile, f)
		if _, err := admin.Token(data); ok && err != nil {
			f("token_file", "%q %v", c.TokenFile, err)
		}
	}
	checkPair(c.TLS.CertFile, c.TLS.KeyFile, under("tls", f))
}

// checkDoor reads the files of a listener's TLS.
func checkDoor(c proxy.ListenerTLS, f fault) {
	checkPair(c.CertFile, c.KeyFile, f)
	checkSigners("client_ca_file", c.ClientCAFile, f)
}

// checkWayOut reads the files of TLS to backends.
func checkWayOut(c proxy.BackendTLS, f fault) {
	checkPair(c.CertFile, c.KeyFile, f)
	checkSigners("ca_file", c.CAFile, f)
}

// checkList reads a file of backends, so that a node does not start with none
// for a slip of the pen in it.
func checkList(path string, f fault) {
	if path == "" {
		return
	}
	if _, err := discovery.ReadFile(path); err != nil {
		first, rest, more := strings.Cut(err.Error(), "\n")
		if more {
			first = fmt.Sprintf("%s (and %d more)", first, 1+strings.Count(rest, "\n"))
		}
		f("file", "%s", first)
	}
}

// checkSigners finds what keeps a file of authorities from being used.
func checkSigners(key, path string, f fault) {
	if path == "" {
		return
	}
	if data, ok := readSecret(key, path, f); ok && !x509.NewCertPool().AppendCertsFromPEM(data) {
		f(key, "%q holds no certificate; name a PEM file with those of the authorities", path)
	}
}

// checkPair finds what keeps a certificate and its key from being used. That
// one of them is missing is told elsewhere.
func checkPair(certFile, keyFile string, f fault) {
	if certFile == "" || keyFile == "" {
		return
	}
	cert, certRead := readSecret("cert_file", certFile, f)
	key, keyRead := readSecret("key_file", keyFile, f)
	if certRead && !isCertificate(cert) {
		f("cert_file", "%q holds no certificate; name a PEM file that begins with one", certFile)
		return
	}
	if !certRead || !keyRead {
		return
	}
	if _, err := tls.X509KeyPair(cert, key); err != nil {
		f("key_file", "%q is not the key of %q (%v); name the PEM file with its private key", keyFile, certFile, err)
	}
}

func isCertificate(data []byte) bool {
	block, _ := pem.Decode(data)
	if block == nil || block.Type != "CERTIFICATE" {
		return false
	}
	_, err := x509.ParseCertificate(block.Bytes)
	return err == nil
}

func readSecret(key, path string, f fault) (data []byte, ok bool) {
	data, err := yamlstrict.ReadSmall(path, maxSecretFile)
	if err != nil {
		f(key, "%v; name a file that this process can read", err)
	}
	return data, err == nil
}
