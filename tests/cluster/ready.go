// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"tessera.dev/tests/cluster/internal/supervisor"
)

const (
	startTimeout  = 3 * time.Minute  // of the whole start, with time for a machine under load
	answerTimeout = 30 * time.Second // of a supervisor, which answers at once unless the machine stands still
	pollPeriod    = 50 * time.Millisecond
	tailLines     = 12
)

// startComponents starts each component as early as possible. containerd and the import of the pause image start
// together with etcd and the API server, and the other components when the API server is ready.
func (c *Cluster) startComponents(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	apiReady := make(chan struct{})
	steps := []func() error{func() error {
		if err := c.startHead(ctx); err != nil {
			return err
		}
		close(apiReady)
		for _, name := range []string{"kube-controller-manager", "kube-scheduler"} {
			if err := c.Start(ctx, name, 0); err != nil {
				return err
			}
		}
		return c.startProxy(ctx, 0)
	}}
	for i := range c.Nodes {
		steps = append(steps, func() error { return c.startNode(ctx, i+1, apiReady) })
	}
	var wait sync.WaitGroup
	errs := make(chan error, len(steps))
	for _, step := range steps {
		wait.Go(func() {
			if err := step(); err != nil {
				errs <- err
				cancel() // the other components need not be waited for after the first failure
			}
		})
	}
	wait.Wait()
	close(errs)
	return <-errs
}

func (c *Cluster) startHead(ctx context.Context) error {
	c.say("starting etcd and kube-apiserver")
	for _, name := range []string{"etcd", "kube-apiserver"} {
		if err := c.Start(ctx, name, 0); err != nil {
			return err
		}
	}
	client, err := c.HTTPClient()
	if err != nil {
		return err
	}
	return c.poll(ctx, "kube-apiserver to be ready", func() error { return c.probe(ctx, client) })
}

func (c *Cluster) startNode(ctx context.Context, node int, apiReady <-chan struct{}) error {
	if err := c.Start(ctx, "containerd", node); err != nil {
		return err
	}
	err := c.poll(ctx, "containerd to serve on "+c.Nodes[node-1].Name, func() error {
		_, err := c.Exec(ctx, node, "ctr", "version")
		return err
	})
	if err != nil {
		return err
	}
	if err := c.LoadImage(ctx, c.pauseArchive(), node); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-apiReady:
	}
	if err := c.Start(ctx, "kubelet", node); err != nil {
		return err
	}
	return c.startProxy(ctx, node)
}

// WaitReady returns when the API server is ready, every node is Ready and untainted, addresses of
// services work if the cluster has kube-proxy, and pods can be created. Up has already waited for all of this.
func (c *Cluster) WaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	client, err := c.HTTPClient()
	if err != nil {
		return err
	}
	c.say("waiting for %d node(s)", len(c.Nodes))
	if err := c.poll(ctx, "kube-apiserver to be ready", func() error { return c.probe(ctx, client) }); err != nil {
		return err
	}
	for _, m := range c.Nodes {
		err := c.poll(ctx, "node "+m.Name+" to be Ready", func() error { return c.nodeReady(ctx, client, m.Name) })
		if err != nil {
			return err
		}
	}
	if err := c.waitProxies(ctx); err != nil {
		return err
	}
	return c.poll(ctx, "the default service account", func() error {
		_, err := c.get(ctx, client, "/api/v1/namespaces/default/serviceaccounts/default")
		return err
	})
}

func (c *Cluster) nodeReady(ctx context.Context, client *http.Client, name string) error {
	body, err := c.get(ctx, client, "/api/v1/nodes/"+name)
	if err != nil {
		return err
	}
	var node struct {
		Spec struct {
			Taints []struct{ Key string }
		}
		Status struct {
			Conditions []struct{ Type, Status, Message string }
		}
	}
	if err := json.Unmarshal(body, &node); err != nil {
		return err
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == "Ready" && condition.Status != "True" {
			return fmt.Errorf("not ready: %s", condition.Message)
		}
	}
	for _, taint := range node.Spec.Taints {
		if strings.HasPrefix(taint.Key, "node.kubernetes.io/") {
			return fmt.Errorf("tainted with %s", taint.Key)
		}
	}
	if len(node.Status.Conditions) == 0 {
		return fmt.Errorf("no status yet")
	}
	return nil
}

// poll repeats check until it succeeds. It fails at once if a component of the cluster has ended, because that
// error says more than a timeout.
func (c *Cluster) poll(ctx context.Context, what string, check func() error) error {
	for {
		err := check()
		if err == nil {
			return nil
		}
		if dead := c.deadComponent(); dead != nil {
			return fmt.Errorf("waiting for %s: %w", what, dead)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waited too long for %s: %w%s", what, err, c.allTails())
		case <-time.After(pollPeriod):
		}
	}
}

// deadComponent returns an error if a component ended without having been stopped.
func (c *Cluster) deadComponent() error {
	ctx, cancel := context.WithTimeout(context.Background(), answerTimeout)
	defer cancel()
	for _, m := range c.machines() {
		states, err := supervisor.Call(ctx, c.socket(m), supervisor.Request{Op: "status"})
		if err != nil {
			return fmt.Errorf("%s: %w", m.Name, err)
		}
		for _, state := range states {
			if !c.Ready && state.Exit != "" {
				path := filepath.Join(c.logDir(m), state.Name+".log")
				return fmt.Errorf("%s on %s ended (%s):\n%s\nlog: %s", state.Name, m.Name, state.Exit,
					tail(path, tailLines), path)
			}
		}
	}
	return nil
}

func (c *Cluster) allTails() string {
	var text strings.Builder
	for _, m := range c.machines() {
		logs, _ := filepath.Glob(filepath.Join(c.logDir(m), "*.log"))
		for _, log := range logs {
			if last := tail(log, 2); last != "" {
				fmt.Fprintf(&text, "\n%s:\n%s", log, last)
			}
		}
	}
	return text.String()
}

// URL is the address of the API server for HTTPClient.
func (c *Cluster) URL() string { return fmt.Sprintf("https://127.0.0.1:%d", c.Port) }

// HTTPClient returns a client of the API server with the administrator's certificate, for use on the host.
func (c *Cluster) HTTPClient() (*http.Client, error) {
	certificate, err := tls.LoadX509KeyPair(c.pki("admin.crt"), c.pki("admin.key"))
	if err != nil {
		return nil, err
	}
	authority, err := os.ReadFile(c.pki("ca.crt"))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	return &http.Client{
		Timeout: 10 * time.Second,
		Transport: &http.Transport{
			DisableKeepAlives: true,
			TLSClientConfig:   &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{certificate}},
		},
	}, nil
}

func (c *Cluster) probe(ctx context.Context, client *http.Client) error {
	_, err := c.get(ctx, client, "/readyz")
	return err
}

func (c *Cluster) get(ctx context.Context, client *http.Client, path string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.URL()+path, nil)
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %.300s", path, response.Status, body)
	}
	return body, err
}
