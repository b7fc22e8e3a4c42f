// Package pki makes a throw-away certificate authority for one test cluster:
// serving and client certificates, the service account key, and kubeconfigs.
package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// validity outlives any test run, and no more.
const validity = 30 * 24 * time.Hour

// Authority is a certificate authority. It writes NAME.crt and NAME.key below its folder.
type Authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// New makes the folder and an authority in it, whose certificate is ca.crt.
func New(dir string) (*Authority, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("pki: %w", err)
	}
	a := &Authority{dir: dir}
	cert, key, err := a.sign("ca", &x509.Certificate{
		Subject:               pkix.Name{CommonName: "controlplane-test-ca"},
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign | x509.KeyUsageDigitalSignature,
	})
	a.cert, a.key = cert, key
	return a, err
}

// Path of a file in the authority's folder.
func (a *Authority) Path(file string) string { return filepath.Join(a.dir, file) }

// Server signs a serving certificate for loopback, the in-cluster names and the given addresses.
func (a *Authority) Server(name string, ips ...net.IP) error {
	_, _, err := a.sign(name, &x509.Certificate{
		Subject:     pkix.Name{CommonName: name},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:    []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"},
		IPAddresses: append([]net.IP{net.IPv4(127, 0, 0, 1)}, ips...),
	})
	return err
}

// Client signs a certificate that logs in as user, in the given groups.
func (a *Authority) Client(name, user string, groups ...string) error {
	_, _, err := a.sign(name, &x509.Certificate{
		Subject:     pkix.Name{CommonName: user, Organization: groups},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	return err
}

// ServiceAccountKey writes NAME.key (to sign tokens) and NAME.pub (to check them).
func (a *Authority) ServiceAccountKey(name string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("pki: %s: %w", name, err)
	}
	if err := writeKey(a.Path(name+".key"), key); err != nil {
		return err
	}
	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return fmt.Errorf("pki: %s: %w", name, err)
	}
	return writePEM(a.Path(name+".pub"), "PUBLIC KEY", der)
}

// Kubeconfig writes a self-contained kubeconfig for the client NAME.
func (a *Authority) Kubeconfig(path, name, server string) error {
	var parts [3]string
	for i, file := range []string{"ca.crt", name + ".crt", name + ".key"} {
		b, err := os.ReadFile(a.Path(file))
		if err != nil {
			return fmt.Errorf("pki: kubeconfig of %s: %w", name, err)
		}
		parts[i] = base64.StdEncoding.EncodeToString(b)
	}
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: test
clusters:
- name: test
  cluster: {server: %q, certificate-authority-data: %s}
contexts:
- name: test
  context: {cluster: test, user: %s}
users:
- name: %s
  user: {client-certificate-data: %s, client-key-data: %s}
`, server, parts[0], name, name, parts[1], parts[2])
	// Whole or not at all: a test may be waiting for the file.
	tmp := path + ".tmp"
	if err := os.WriteFile(tmp, []byte(text), 0o600); err != nil {
		return fmt.Errorf("pki: %w", err)
	}
	return os.Rename(tmp, path)
}

func (a *Authority) sign(name string, tmpl *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("pki: %s: %w", name, err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, nil, fmt.Errorf("pki: %s: %w", name, err)
	}
	tmpl.SerialNumber = serial
	// An hour back: a clock step during the test must not make it invalid.
	tmpl.NotBefore = time.Now().Add(-time.Hour)
	tmpl.NotAfter = time.Now().Add(validity)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = tmpl, key
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, parent, &key.PublicKey, signer)
	if err != nil {
		return nil, nil, fmt.Errorf("pki: %s: %w", name, err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, nil, fmt.Errorf("pki: %s: %w", name, err)
	}
	if err := writePEM(a.Path(name+".crt"), "CERTIFICATE", der); err != nil {
		return nil, nil, err
	}
	return cert, key, writeKey(a.Path(name+".key"), key)
}

func writeKey(path string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return fmt.Errorf("pki: %s: %w", path, err)
	}
	return writePEM(path, "PRIVATE KEY", der)
}

func writePEM(path, kind string, der []byte) error {
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		return fmt.Errorf("pki: %w", err)
	}
	return nil
}
