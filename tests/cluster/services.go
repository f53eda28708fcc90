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

// proxies returns the kube-proxy of a machine, or nothing if the cluster has no services.
func (c *Cluster) proxies(m *Machine) []supervisor.Component {
	if !c.Services {
		return nil
	}
	// kube-proxy waits 30 s for a Node with its name, and the control plane has no Node. There it gets the name of
	// the first node, which matters only for services whose traffic stays on a node.
	node := m.Name
	if m == &c.Head {
		node = c.Nodes[0].Name
	}
	argv := []string{
		c.Parts.Kubernetes, proxyName, "--hostname-override=" + node,
		"--kubeconfig=" + filepath.Join(c.machineDir(&c.Head), proxyName+".kubeconfig"),
		"--proxy-mode=iptables", "--cluster-cidr=" + podRange, "--iptables-min-sync-period=100ms",
		// Without this, the answers of a pod on the same bridge would not pass the node, which must translate
		// their addresses.
		"--masquerade-all",
		// kube-proxy keeps the host's settings of connection tracking, and serves no node ports on 127.0.0.1.
		"--conntrack-max-per-core=0", "--conntrack-tcp-timeout-established=0",
		"--conntrack-tcp-timeout-close-wait=0", "--iptables-localhost-nodeports=false",
	}
	return []supervisor.Component{{Name: proxyName, Argv: append(argv, c.options.Flags[proxyName]...)}}
}

// refuseServices returns the arguments of "ip" that make the control plane refuse addresses of services without
// endpoints, so that callers need not wait. All routes of the cluster end at the control plane. With kube-proxy it is
// a rule for forwarded packets, because a route would also refuse the control plane's own connections before
// kube-proxy translates their addresses.
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

// waitProxies returns when kube-proxy on every machine has written rules for the API server's service. kube-proxy
// writes the rules of all services at the same time.
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
