// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"tessera.dev/tests/cluster/image"
	"tessera.dev/tests/cluster/internal/cgroup"
	"tessera.dev/tests/cluster/internal/parts"
	"tessera.dev/tests/cluster/internal/pki"
	"tessera.dev/tests/cluster/internal/supervisor"
)

// Up starts a cluster and returns when every node is Ready and a pod may be created. A healthy cluster
// that is already there is returned as it is; a broken one is replaced. When it fails, everything it
// started has ended, and the logs stay in the folder until Down.
func Up(ctx context.Context, options Options) (*Cluster, error) {
	if options.Log == nil {
		options.Log = io.Discard
	}
	if options.Nodes == 0 {
		options.Nodes = 1
	}
	if options.Nodes < 0 || options.Nodes > maxNodes {
		return nil, fmt.Errorf("%d nodes: from 1 to %d are possible", options.Nodes, maxNodes)
	}
	dir, err := options.Folder()
	if err != nil {
		return nil, err
	}
	if os.Geteuid() != 0 {
		return nil, errors.New("a cluster needs root, for namespaces and cgroups")
	}
	unlock, err := lock(ctx, dir, options.Log)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if c, err := reuse(ctx, dir, options); c != nil || err != nil {
		return c, err
	}
	if err := checkTools(); err != nil {
		return nil, err
	}
	built, err := parts.Build(ctx, options.Log)
	if err != nil {
		return nil, err
	}
	c := &Cluster{Dir: dir, Group: groupName(dir), Parts: *built, log: options.Log, options: options}
	c.Head = Machine{Name: controlName, IP: headIP}
	for i := 1; i <= options.Nodes; i++ {
		c.Nodes = append(c.Nodes, Machine{Name: fmt.Sprintf("n%d", i), IP: nodeIP(i)})
	}
	if err := c.start(ctx); err != nil {
		if ended := end(dir); ended != nil {
			err = fmt.Errorf("%w\nand cleaning up failed: %w", err, ended)
		}
		return nil, fmt.Errorf("%w\nall logs: %s", err, filepath.Join(dir, "logs"))
	}
	return c, nil
}

// reuse returns the cluster in dir if it is what the options ask for and works, and clears away the
// remains of one that does not work.
func reuse(ctx context.Context, dir string, options Options) (*Cluster, error) {
	c, err := Open(dir)
	if errors.Is(err, ErrNoCluster) {
		return nil, nil
	}
	if err == nil && c.Ready {
		c.log = options.Log
		limited, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		if _, err := c.Status(limited); err == nil {
			if len(c.Nodes) != options.Nodes {
				return nil, fmt.Errorf("a cluster with %d nodes is already up in %s: take it down first, "+
					"or use another name", len(c.Nodes), dir)
			}
			c.say("a cluster is already up in %s", dir)
			return c, c.WaitReady(ctx)
		}
	}
	fmt.Fprintf(options.Log, "replacing the remains of a cluster in %s\n", dir)
	return nil, remove(dir, io.Discard)
}

func checkTools() error {
	for tool, source := range map[string]string{
		"ip": "iproute2", "nsenter": "util-linux", "setpriv": "util-linux", "runc": "runc", "/usr/lib/cni/bridge": "containernetworking-plugins",
	} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("%s is missing: install the package %s", tool, source)
		}
	}
	return nil
}

func (c *Cluster) start(ctx context.Context) error {
	begin := time.Now()
	listener, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return err
	}
	defer listener.Close()
	c.Port = listener.Addr().(*net.TCPAddr).Port
	if err := c.writeFiles(); err != nil {
		return err
	}
	if err := c.startMachines(listener); err != nil {
		return err
	}
	if err := c.connect(); err != nil {
		return err
	}
	if err := c.startComponents(ctx); err != nil {
		return err
	}
	if err := c.WaitReady(ctx); err != nil {
		return err
	}
	c.Ready = true
	c.say("cluster ready in %.1f s: %d node(s), folder %s", time.Since(begin).Seconds(), len(c.Nodes), c.Dir)
	return c.save()
}

// writeFiles makes the folder, certificates and configurations. The state file comes first, so that
// Down knows the folder as a cluster's.
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
		"kubectl": c.Parts.Kubernetes, "ctr": filepath.Join(c.Parts.Containerd, "ctr"),
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
	return os.WriteFile(filepath.Join(c.machineDir(&c.Head), "kube-scheduler.json"), []byte(c.schedulerConfig()), 0o600)
}

// snapshotter: an overlay cannot be the upper layer of another, as in a cluster inside a container.
func snapshotter(dir string) string {
	const overlayMagic = 0x794c7630
	var stat syscall.Statfs_t
	if syscall.Statfs(dir, &stat) == nil && stat.Type == overlayMagic {
		return "native"
	}
	return "overlayfs"
}

func (c *Cluster) writeCertificates() error {
	dir := filepath.Join(c.Dir, "pki")
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
	if err := front.Issue(pki.Leaf{File: "front-proxy-client", CommonName: "front-proxy-client"}); err != nil {
		return err
	}
	loopback := net.IPv4(127, 0, 0, 1)
	leaves := []pki.Leaf{
		{
			File: "apiserver", CommonName: "kube-apiserver",
			DNS: []string{"kubernetes", "kubernetes.default", "kubernetes.default.svc",
				"kubernetes.default.svc.cluster.local", "localhost"},
			IPs: []net.IP{net.ParseIP(headIP), net.ParseIP(serviceIP), loopback},
		},
		{File: "apiserver-kubelet", CommonName: "kube-apiserver-kubelet-client", Organizations: []string{"system:masters"}},
		{File: "admin", CommonName: "admin", Organizations: []string{"system:masters"}},
		{File: "kube-controller-manager", CommonName: "system:kube-controller-manager"},
		{File: "kube-scheduler", CommonName: "system:kube-scheduler"},
	}
	for _, m := range c.Nodes {
		leaves = append(leaves,
			pki.Leaf{File: m.Name, CommonName: "system:node:" + m.Name, Organizations: []string{"system:nodes"}},
			pki.Leaf{
				File: filepath.Join("..", "machines", m.Name, "kubelet-server"), CommonName: m.Name,
				DNS: []string{m.Name}, IPs: []net.IP{net.ParseIP(m.IP), loopback},
			})
	}
	for _, leaf := range leaves {
		if err := ca.Issue(leaf); err != nil {
			return err
		}
	}
	inside, outside := fmt.Sprintf("https://%s:%d", headIP, apiPort), fmt.Sprintf("https://127.0.0.1:%d", c.Port)
	configs := map[string]string{
		c.Kubeconfig(): c.kubeconfig(outside, filepath.Join(dir, "admin")),
	}
	for _, name := range []string{"kube-controller-manager", "kube-scheduler"} {
		configs[filepath.Join(c.machineDir(&c.Head), name+".kubeconfig")] = c.kubeconfig(inside, filepath.Join(dir, name))
	}
	for i := range c.Nodes {
		m := &c.Nodes[i]
		configs[filepath.Join(c.machineDir(m), "kubelet.kubeconfig")] = c.kubeconfig(inside, filepath.Join(dir, m.Name))
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

// startMachines spawns the supervisors and waits until each answers.
func (c *Cluster) startMachines(listener *net.TCPListener) error {
	failed := make(chan error, len(c.Nodes)+1)
	var tie *os.File
	if c.options.Tied {
		var err error
		if tie, c.tie, err = os.Pipe(); err != nil {
			return err
		}
		defer tie.Close()
	}
	for i, m := range c.machines() {
		groups, err := cgroup.Create(c.Group + "/" + m.Name)
		if err != nil {
			return err
		}
		spec, inherited := c.headSpec(groups), listener
		if i > 0 {
			spec, inherited = c.nodeSpec(i, groups), nil
		}
		specFile := filepath.Join(c.machineDir(m), "spec.json")
		if err := spec.Write(specFile); err != nil {
			return err
		}
		log, err := os.OpenFile(filepath.Join(c.logDir(m), "supervisor.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
		if err != nil {
			return err
		}
		cmd, err := supervisor.Spawn(specFile, inherited, tie, log)
		log.Close()
		if err != nil {
			return err
		}
		m.PID = cmd.Process.Pid
		go func() {
			err := cmd.Wait() // also collects it for callers that live as long as the cluster
			failed <- fmt.Errorf("supervisor of %s ended: %v", m.Name, err)
		}()
	}
	if err := c.save(); err != nil {
		return err
	}
	for _, m := range c.machines() {
		if err := c.waitSupervisor(m, failed); err != nil {
			path := filepath.Join(c.logDir(m), "supervisor.log")
			return fmt.Errorf("%w\n%s\nlog: %s", err, tail(path, 5), path)
		}
	}
	return nil
}

func (c *Cluster) waitSupervisor(m *Machine, failed <-chan error) error {
	var last error
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		_, last = supervisor.Call(ctx, c.socket(m), supervisor.Request{Op: "status"})
		cancel()
		if last == nil {
			return nil
		}
		select {
		case err := <-failed:
			return err
		case <-time.After(10 * time.Millisecond):
		}
	}
	return last
}

// connect wires the machines: a bridge in the control plane's namespace and a cable to each node.
// Routes to the pods of the other nodes go through the control plane.
func (c *Cluster) connect() error {
	lines := []string{
		"link set lo up", "link add br0 type bridge", "addr add " + headIP + "/16 dev br0",
		"addr add " + serviceIP + "/32 dev br0", "link set br0 up", "route add default dev br0",
		"route add unreachable " + serviceRange,
	}
	for i, m := range c.Nodes {
		lines = append(lines,
			fmt.Sprintf("link add %s type veth peer name eth0 netns %d", m.Name, m.PID),
			fmt.Sprintf("link set %s master br0 up", m.Name),
			fmt.Sprintf("route add %s via %s", podSubnet(i+1), m.IP))
	}
	if err := ip(c.Head.PID, lines); err != nil {
		return err
	}
	for _, m := range c.Nodes {
		err := ip(m.PID, []string{
			"link set lo up", "addr add " + m.IP + "/16 dev eth0", "link set eth0 up", "route add default via " + headIP,
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func ip(pid int, lines []string) error {
	cmd := exec.Command("nsenter", "-t", fmt.Sprint(pid), "-n", "ip", "-batch", "-")
	cmd.Stdin = strings.NewReader(strings.Join(lines, "\n") + "\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("network of the cluster: ip: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}
