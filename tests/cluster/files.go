// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"tessera.dev/tests/cluster/internal/pki"
	"tessera.dev/tools/image"
)

// writeFiles makes the folder, certificates and configurations. It writes the state file first, so that Down
// recognizes the folder as a cluster's even if the rest is missing.
func (c *Cluster) writeFiles() error {
	for _, m := range c.machines() {
		for _, dir := range []string{c.machineDir(m), c.logDir(m)} {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return err
			}
		}
	}
	for _, dir := range []string{"pki", "bin"} {
		if err := os.MkdirAll(filepath.Join(c.Dir, dir), 0o755); err != nil {
			return err
		}
	}
	c.Snapshotter = snapshotter(c.Dir)
	if err := c.save(); err != nil {
		return err
	}
	for name, target := range map[string]string{
		"kubectl": c.Parts.Kubectl, "ctr": filepath.Join(c.Parts.Containerd, "ctr"), "helm": c.Parts.Helm,
	} {
		if err := os.Symlink(target, filepath.Join(c.Dir, "bin", name)); err != nil {
			return err
		}
	}
	if err := c.writeCertificates(); err != nil {
		return fmt.Errorf("certificates: %w", err)
	}
	if err := c.writePauseImage(); err != nil {
		return fmt.Errorf("pause image: %w", err)
	}
	return os.WriteFile(c.schedulerConfigFile(), []byte(defaultSchedulerConfig), 0o600)
}

// snapshotter returns the snapshotter for the cluster's folder. An overlay cannot be the upper layer of another
// overlay, and in a container the folder may be on an overlay.
func snapshotter(dir string) string {
	const overlayMagic = 0x794c7630
	var stat syscall.Statfs_t
	if syscall.Statfs(dir, &stat) == nil && stat.Type == overlayMagic {
		return "native"
	}
	return "overlayfs"
}

func (c *Cluster) writeCertificates() error {
	dir := c.pki("")
	ca, err := pki.NewAuthority(dir, "ca")
	if err != nil {
		return err
	}
	front, err := pki.NewAuthority(dir, "front-proxy-ca")
	if err != nil {
		return err
	}
	if err := pki.WriteKeyPair(dir, "sa"); err != nil {
		return err
	}
	client := pki.Leaf{File: "front-proxy-client", CommonName: "front-proxy-client"}
	if err := front.Issue(client); err != nil {
		return err
	}
	for _, leaf := range append(headLeaves(), c.nodeLeaves()...) {
		if err := ca.Issue(leaf); err != nil {
			return err
		}
	}
	return c.writeKubeconfigs()
}

func headLeaves() []pki.Leaf {
	masters := []string{"system:masters"}
	return []pki.Leaf{
		{
			File: "apiserver", CommonName: "kube-apiserver",
			DNS: []string{
				"kubernetes", "kubernetes.default", "kubernetes.default.svc",
				"kubernetes.default.svc.cluster.local", "localhost",
			},
			IPs: []net.IP{net.ParseIP(headIP), net.ParseIP(serviceIP), net.IPv4(127, 0, 0, 1)},
		},
		{
			File: "apiserver-kubelet", CommonName: "kube-apiserver-kubelet-client",
			Organizations: masters,
		},
		{File: "admin", CommonName: "admin", Organizations: masters},
		{File: "kube-controller-manager", CommonName: "system:kube-controller-manager"},
		{File: "kube-scheduler", CommonName: "system:kube-scheduler"},
		{File: "kube-proxy", CommonName: "system:kube-proxy"},
	}
}

// nodeLeaves returns the certificates of a node. A kubelet has one as a client and another as a server.
func (c *Cluster) nodeLeaves() []pki.Leaf {
	var leaves []pki.Leaf
	for _, m := range c.Nodes {
		client := pki.Leaf{
			File: m.Name, CommonName: "system:node:" + m.Name, Organizations: []string{"system:nodes"},
		}
		server := pki.Leaf{
			File: m.Name + "-server", CommonName: m.Name, DNS: []string{m.Name},
			IPs: []net.IP{net.ParseIP(m.IP), net.IPv4(127, 0, 0, 1)},
		}
		leaves = append(leaves, client, server)
	}
	return leaves
}

func (c *Cluster) writeKubeconfigs() error {
	configs := map[string]string{c.Kubeconfig(): c.kubeconfig(c.URL(), c.pki("admin"))}
	for _, name := range []string{"kube-controller-manager", "kube-scheduler", "kube-proxy"} {
		path := filepath.Join(c.machineDir(&c.Head), name+".kubeconfig")
		configs[path] = c.kubeconfig(insideURL, c.pki(name))
	}
	for i := range c.Nodes {
		m := &c.Nodes[i]
		path := filepath.Join(c.machineDir(m), "kubelet.kubeconfig")
		configs[path] = c.kubeconfig(insideURL, c.pki(m.Name))
	}
	for path, content := range configs {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) pauseArchive() string { return filepath.Join(c.Dir, "pause.tar") }

func (c *Cluster) writePauseImage() error {
	builder := image.New(PauseImage)
	if err := builder.AddFile(c.Parts.Pause, "/pause", 0o755); err != nil {
		return err
	}
	builder.Config.Entrypoint = []string{"/pause"}
	return builder.WriteFile(c.pauseArchive())
}
