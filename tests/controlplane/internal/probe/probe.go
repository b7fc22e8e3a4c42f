// Package probe asks the API server whether it is there.
package probe

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"time"
)

// attempt bounds one request: a server that accepts and does not answer is asked again.
const attempt = 5 * time.Second

// Files names the PEM files of the authority and of the client.
type Files struct{ CA, Cert, Key string }

// Get returns a check that passes once url answers 200.
func Get(url string, files Files) (func() error, error) {
	pem, err := os.ReadFile(files.CA)
	if err != nil {
		return nil, fmt.Errorf("probe: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("probe: %s holds no certificate", files.CA)
	}
	pair, err := tls.LoadX509KeyPair(files.Cert, files.Key)
	if err != nil {
		return nil, fmt.Errorf("probe: %w", err)
	}
	client := &http.Client{Transport: &http.Transport{
		TLSClientConfig:   &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}},
		DisableKeepAlives: true,
	}}
	return func() error {
		ctx, cancel := context.WithTimeout(context.Background(), attempt)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("%s: %s", url, resp.Status)
		}
		return nil
	}, nil
}
