// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

const (
	schedulerTimeout = 90 * time.Second

	// schedulerKubeconfig is the same path as in a cluster made by kubeadm, so that a configuration written for
	// such a cluster works here. The file is only on the control plane.
	schedulerKubeconfig = "/etc/kubernetes/scheduler.conf"

	defaultSchedulerConfig = `apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection:
  kubeconfig: ` + schedulerKubeconfig + `
percentageOfNodesToScore: 100
`
)

func (c *Cluster) schedulerConfigFile() string {
	return filepath.Join(c.machineDir(&c.Head), "kube-scheduler.yaml")
}

// ConfigureScheduler restarts kube-scheduler with another KubeSchedulerConfiguration and returns when kube-scheduler
// is healthy. The text is a complete configuration in YAML or JSON that names the kubeconfig of kubeadm,
// /etc/kubernetes/scheduler.conf. An empty text means the configuration that Up wrote. If kube-scheduler does not
// become healthy, the previous configuration is restored, and the error holds the end of the log. There is no leader
// election.
func (c *Cluster) ConfigureScheduler(ctx context.Context, config string) error {
	if config == "" {
		config = defaultSchedulerConfig
	}
	before, err := os.ReadFile(c.schedulerConfigFile())
	if err != nil {
		return err
	}
	err = c.restartScheduler(ctx, []byte(config))
	if err == nil {
		return nil
	}
	log, _ := c.LogPath("kube-scheduler", 0)
	err = fmt.Errorf("kube-scheduler with the new configuration: %w\n%s\nlog: %s", err, tail(log, tailLines), log)
	if restored := c.restartScheduler(ctx, before); restored != nil {
		err = errors.Join(err, fmt.Errorf("kube-scheduler with the previous configuration: %w", restored))
	}
	return err
}

func (c *Cluster) restartScheduler(ctx context.Context, config []byte) error {
	if err := os.WriteFile(c.schedulerConfigFile(), config, 0o600); err != nil {
		return err
	}
	if err := c.Restart(ctx, "kube-scheduler", 0); err != nil {
		return err
	}
	begun, err := c.schedulerState(ctx)
	if err != nil {
		return err
	}
	for deadline := time.Now().Add(schedulerTimeout); ; {
		state, err := c.schedulerState(ctx)
		if err != nil {
			return err
		}
		if state.Starts != begun.Starts || !state.Running {
			return errors.New("it ended: " + state.Exit)
		}
		if c.schedulerServes(ctx) {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("not healthy after %s", schedulerTimeout)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pollPeriod):
		}
	}
}

func (c *Cluster) schedulerState(ctx context.Context) (Component, error) {
	all, err := c.Status(ctx)
	if err != nil {
		return Component{}, err
	}
	for _, each := range all {
		if each.Name == "kube-scheduler" {
			return each, nil
		}
	}
	return Component{}, errors.New("there is no kube-scheduler")
}

// schedulerServes checks kube-scheduler from inside its namespace, because it listens only there, with a self-signed certificate.
func (c *Cluster) schedulerServes(ctx context.Context) bool {
	_, err := c.Exec(ctx, 0, c.Parts.Kubectl, "get", "--raw", "/readyz",
		"--kubeconfig="+schedulerKubeconfig, "--server=https://127.0.0.1:10259", "--insecure-skip-tls-verify")
	return err == nil
}
