package pki

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func authority(t *testing.T) *Authority {
	t.Helper()
	a, err := New(filepath.Join(t.TempDir(), "pki"))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// leaf loads what was written, checks that key and certificate belong together, and returns the certificate.
func leaf(t *testing.T, a *Authority, name string) *x509.Certificate {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(a.Path(name+".crt"), a.Path(name+".key"))
	if err != nil {
		t.Fatal(err)
	}
	return pair.Leaf
}

func pool(t *testing.T, a *Authority) *x509.CertPool {
	t.Helper()
	pem, err := os.ReadFile(a.Path("ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	p := x509.NewCertPool()
	if !p.AppendCertsFromPEM(pem) {
		t.Fatal("ca.crt holds no certificate")
	}
	return p
}

func TestServerCertificateIsGoodForLoopbackAndTheServiceAddressOnly(t *testing.T) {
	a := authority(t)
	if err := a.Server("apiserver", net.IPv4(10, 96, 0, 1)); err != nil {
		t.Fatal(err)
	}
	cert := leaf(t, a, "apiserver")
	for _, host := range []string{"127.0.0.1", "10.96.0.1", "localhost", "kubernetes.default.svc"} {
		if _, err := cert.Verify(x509.VerifyOptions{Roots: pool(t, a), DNSName: host}); err != nil {
			t.Errorf("%s: %v", host, err)
		}
	}
	if err := cert.VerifyHostname("10.0.0.1"); err == nil {
		t.Error("the certificate is accepted for a foreign address")
	}
}

func TestClientCertificateCarriesUserAndGroupsAndCannotServe(t *testing.T) {
	a := authority(t)
	if err := a.Client("admin", "kubernetes-admin", "system:masters"); err != nil {
		t.Fatal(err)
	}
	cert := leaf(t, a, "admin")
	if cert.Subject.CommonName != "kubernetes-admin" || len(cert.Subject.Organization) != 1 || cert.Subject.Organization[0] != "system:masters" {
		t.Errorf("subject is %s", cert.Subject)
	}
	if _, err := cert.Verify(x509.VerifyOptions{Roots: pool(t, a), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		t.Error(err)
	}
	if _, err := cert.Verify(x509.VerifyOptions{Roots: pool(t, a), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}); err == nil {
		t.Error("a client certificate may serve")
	}
}

func TestKubeconfigIsWholeAndPrivate(t *testing.T) {
	a := authority(t)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := a.Kubeconfig(path, "admin", "https://127.0.0.1:1"); err == nil {
		t.Fatal("a kubeconfig for a client without certificate was written")
	}
	if _, err := os.Stat(path); err == nil {
		t.Fatal("a failed kubeconfig left a file")
	}
	if err := a.Client("admin", "admin"); err != nil {
		t.Fatal(err)
	}
	if err := a.Kubeconfig(path, "admin", "https://127.0.0.1:1"); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), `server: "https://127.0.0.1:1"`) {
		t.Errorf("no server in\n%s", text)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("mode is %v", info.Mode())
	}
}
