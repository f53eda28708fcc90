// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"tessera.dev/tests/cluster/internal/supervisor"
)

const proxyName = "kube-proxy"

// proxies is kube-proxy of a machine, where the cluster has services.
func (c *Cluster) proxies(m *Machine) []supervisor.Component {
	if !c.Services {
		return nil
	}
	// It waits 30 s for a Node of its name, and the control plane has none: there it takes the first
	// node's name. That counts only for services whose traffic stays on a node.
	node := m.Name
	if m == &c.Head {
		node = c.Nodes[0].Name
	}
	argv := []string{
		c.Parts.Kubernetes, proxyName, "--hostname-override=" + node,
		"--kubeconfig=" + filepath.Join(c.machineDir(&c.Head), proxyName+".kubeconfig"),
		"--proxy-mode=iptables", "--cluster-cidr=" + podRange, "--iptables-min-sync-period=100ms",
		// Answers of a pod on the same bridge would not pass the node, which has to translate them.
		"--masquerade-all",
		// Keeps the host's connection tracking settings, and serves no node ports on 127.0.0.1.
		"--conntrack-max-per-core=0", "--conntrack-tcp-timeout-established=0",
		"--conntrack-tcp-timeout-close-wait=0", "--iptables-localhost-nodeports=false",
	}
	return []supervisor.Component{{Name: proxyName, Argv: append(argv, c.options.Flags[proxyName]...)}}
}

// refuseServices makes the control plane, where all routes end, refuse addresses of services that
// nobody serves, so that callers need not wait. With kube-proxy, a route would also refuse what it
// translates on the control plane itself, because a route is looked for first.
func (c *Cluster) refuseServices() string {
	if c.Services {
		return "rule add iif br0 to " + serviceRange + " unreachable"
	}
	return "route add unreachable " + serviceRange
}

func (c *Cluster) startProxy(ctx context.Context, node int) error {
	if !c.Services {
		return nil
	}
	return c.Start(ctx, proxyName, node)
}

// waitProxies returns when kube-proxy on every machine has written rules for the API server's service,
// which it does for all services at once.
func (c *Cluster) waitProxies(ctx context.Context) error {
	if !c.Services {
		return nil
	}
	for i, m := range c.machines() {
		err := c.poll(ctx, "kube-proxy of "+m.Name, func() error {
			rules, err := c.Exec(ctx, i, "iptables", "-t", "nat", "-S", "KUBE-SERVICES")
			if err == nil && !strings.Contains(rules, " "+serviceIP+"/32 ") {
				err = fmt.Errorf("no rule for %s yet", serviceIP)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
