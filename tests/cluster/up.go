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
	"time"

	"tessera.dev/tests/cluster/internal/cgroup"
	"tessera.dev/tests/cluster/internal/parts"
	"tessera.dev/tests/cluster/internal/supervisor"
)

// Up starts a cluster and returns when every node is Ready and a pod may be created. If there is a cluster in the
// folder, Up returns it if it is healthy, and replaces it if it is broken. When Up fails, it has ended all that it
// started, and the logs stay in the folder until Down.
func Up(ctx context.Context, options Options) (*Cluster, error) {
	options = options.withDefaults()
	dir, err := options.Folder()
	if err != nil {
		return nil, err
	}
	if err := options.check(); err != nil {
		return nil, err
	}
	unlock, err := lock(ctx, dir, options.Log)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if c, err := reuse(ctx, dir, options); c != nil || err != nil {
		return c, err
	}
	built, err := parts.Build(ctx, options.Log)
	if err != nil {
		return nil, err
	}
	c := &Cluster{Dir: dir, Group: groupName(dir), Parts: *built, Services: options.Services,
		log: options.Log, options: options}
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

// reuse returns the cluster in dir if it fits the options and works. It removes a cluster that does not work.
func reuse(ctx context.Context, dir string, options Options) (*Cluster, error) {
	c, err := Open(dir)
	if errors.Is(err, ErrNoCluster) {
		return nil, nil
	}
	if err == nil && c.Ready {
		c.log = options.Log
		limited, cancel := context.WithTimeout(ctx, answerTimeout)
		defer cancel()
		if _, err := c.Status(limited); err == nil {
			if len(c.Nodes) != options.Nodes || c.Services != options.Services {
				return nil, fmt.Errorf("a cluster of %s is already up in %s: take it down first, or use another name",
					c.shape(), dir)
			}
			c.say("a cluster is already up in %s", dir)
			return c, c.WaitReady(ctx)
		}
	}
	fmt.Fprintf(options.Log, "replacing the remains of a cluster in %s\n", dir)
	return nil, remove(dir, io.Discard)
}

func (o Options) withDefaults() Options {
	if o.Log == nil {
		o.Log = io.Discard
	}
	if o.Nodes == 0 {
		o.Nodes = 1
	}
	return o
}

// check returns an error for invalid options or missing programs before anything starts.
func (o Options) check() error {
	if o.Nodes < 0 || o.Nodes > maxNodes {
		return fmt.Errorf("%d nodes: from 1 to %d are possible", o.Nodes, maxNodes)
	}
	if os.Geteuid() != 0 {
		return errors.New("a cluster needs root, for namespaces and cgroups")
	}
	for tool, source := range map[string]string{
		"ip": "iproute2", "nsenter": "util-linux", "setpriv": "util-linux", "runc": "runc",
		"/usr/lib/cni/bridge": "containernetworking-plugins",
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
	c.say("cluster ready in %.1f s: %s, %s of memory, folder %s", time.Since(begin).Seconds(), c.shape(),
		mebibytes(c.Memory()), c.Dir)
	return c.save()
}

// startMachines spawns the supervisors and waits until each answers.
func (c *Cluster) startMachines(listener *net.TCPListener) error {
	var tie *os.File
	if c.options.Tied {
		var err error
		if tie, c.tie, err = os.Pipe(); err != nil {
			return err
		}
		defer tie.Close()
	}
	failed := make(chan error, len(c.Nodes)+1)
	for i, m := range c.machines() {
		inherited := listener
		if i > 0 {
			inherited = nil
		}
		if err := c.spawn(i, inherited, tie, failed); err != nil {
			return fmt.Errorf("%s: %w", m.Name, err)
		}
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

// spawn starts the supervisor of machine i. When the supervisor ends, failed receives an error.
func (c *Cluster) spawn(i int, listener *net.TCPListener, tie *os.File, failed chan<- error) error {
	m := c.machines()[i]
	groups, err := cgroup.Create(c.Group + "/" + m.Name)
	if err != nil {
		return err
	}
	spec := c.headSpec(groups)
	if i > 0 {
		spec = c.nodeSpec(i, groups)
	}
	specFile := filepath.Join(c.machineDir(m), "spec.json")
	if err := spec.Write(specFile); err != nil {
		return err
	}
	flags := os.O_CREATE | os.O_WRONLY | os.O_APPEND
	log, err := os.OpenFile(filepath.Join(c.logDir(m), "supervisor.log"), flags, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd, err := supervisor.Spawn(specFile, listener, tie, log)
	if err != nil {
		return err
	}
	m.PID = cmd.Process.Pid
	go func() {
		err := cmd.Wait() // also collects it for callers that live as long as the cluster
		failed <- fmt.Errorf("supervisor of %s ended: %v", m.Name, err)
	}()
	return nil
}

func (c *Cluster) waitSupervisor(m *Machine, failed <-chan error) error {
	var last error
	for deadline := time.Now().Add(answerTimeout); time.Now().Before(deadline); {
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

// shape describes the cluster's composition.
func (c *Cluster) shape() string {
	text := fmt.Sprintf("%d nodes", len(c.Nodes))
	if len(c.Nodes) == 1 {
		text = "1 node"
	}
	if c.Services {
		text += " with kube-proxy"
	}
	return text
}

// connect makes the network of the machines: a bridge in the control plane's namespace, and a veth pair to each
// node. Routes to the pods of other nodes go through the control plane.
func (c *Cluster) connect() error {
	lines := []string{
		"link set lo up", "link add br0 type bridge", "addr add " + headIP + "/16 dev br0",
		"addr add " + serviceIP + "/32 dev br0", "link set br0 up", "route add default dev br0",
		c.refuseServices(),
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
