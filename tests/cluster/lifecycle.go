// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"tessera.dev/tests/cluster/internal/cgroup"
	"tessera.dev/tests/cluster/internal/supervisor"
)

// Down ends the cluster in the folder and removes every trace of it, its folder and logs included.
// It also works for half-made, crashed and already removed clusters. log may be nil.
func Down(dir string, log io.Writer) error {
	if log == nil {
		log = io.Discard
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	unlock, err := lock(context.Background(), dir, log)
	if err != nil {
		return err
	}
	defer unlock()
	return remove(dir, log)
}

func remove(dir string, log io.Writer) error {
	if err := end(dir); err != nil {
		return err
	}
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		fmt.Fprintf(log, "no cluster in %s\n", dir)
		return nil
	}
	if _, err := os.Stat(filepath.Join(dir, stateFile)); err != nil {
		return fmt.Errorf("%s is not a cluster's folder, and is left alone", dir)
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	os.Remove(DefaultRoot) // succeeds for the last one
	fmt.Fprintf(log, "the cluster in %s is gone\n", dir)
	return nil
}

// lock lets only one Up or Down of a directory run at a time. It uses the name of an abstract socket, which leaves
// no file, and which the kernel frees when the process ends for any reason.
func lock(ctx context.Context, dir string, log io.Writer) (func(), error) {
	limited, cancel := context.WithTimeout(ctx, lockTimeout)
	defer cancel()
	for logged := false; ; logged = true {
		listener, err := net.Listen("unix", "@"+groupName(dir))
		if err == nil {
			return func() { listener.Close() }, nil
		}
		if !logged {
			fmt.Fprintf(log, "waiting for another testcluster that works on %s\n", dir)
		}
		select {
		case <-limited.Done():
			return nil, fmt.Errorf("another testcluster works on %s: %w", dir, limited.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// end kills all processes of the cluster; the kernel then drops its namespaces, mounts and devices.
func end(dir string) error { return cgroup.Remove(groupName(dir), removeTimeout) }

// Down calls Down for the cluster's folder.
func (c *Cluster) Down() error { return Down(c.Dir, c.log) }

// Status asks every supervisor for its components.
func (c *Cluster) Status(ctx context.Context) ([]Component, error) {
	var all []Component
	for _, m := range c.machines() {
		states, err := supervisor.Call(ctx, c.socket(m), supervisor.Request{Op: "status"})
		if err != nil {
			return all, fmt.Errorf("%s: %w", m.Name, err)
		}
		for _, state := range states {
			all = append(all, Component{Machine: m.Name, State: state})
		}
	}
	return all, nil
}

// Memory returns the bytes of memory that the cluster's programs and pods hold, without the kernel's cache of
// files. If machines are named, only these count; machine 0 is the control plane.
func (c *Cluster) Memory(machines ...int) int64 {
	var sum int64
	for i, m := range c.machines() {
		if len(machines) == 0 || slices.Contains(machines, i) {
			sum += cgroup.Memory(c.Group + "/" + m.Name)
		}
	}
	return sum
}

func mebibytes(bytes int64) string { return fmt.Sprintf("%d MiB", bytes>>20) }

// Restart ends a component with SIGTERM, or another signal, and starts it again. It returns when the
// new process runs, but that process may not serve yet. node is used only for the kubelet, containerd and
// kube-proxy.
func (c *Cluster) Restart(ctx context.Context, component string, node int, signal ...syscall.Signal) error {
	return c.command(ctx, "restart", component, node, signal)
}

// Stop ends a component. It stays ended until Start.
func (c *Cluster) Stop(ctx context.Context, component string, node int, signal ...syscall.Signal) error {
	return c.command(ctx, "stop", component, node, signal)
}

// Start starts a component that Stop ended.
func (c *Cluster) Start(ctx context.Context, component string, node int) error {
	return c.command(ctx, "start", component, node, nil)
}

func (c *Cluster) command(ctx context.Context, op, component string, node int, signals []syscall.Signal) error {
	m, err := c.home(component, node)
	if err != nil {
		return err
	}
	request := supervisor.Request{Op: op, Component: component}
	if len(signals) > 0 {
		request.Signal = int(signals[0])
	}
	if _, err := supervisor.Call(ctx, c.socket(m), request); err != nil {
		return fmt.Errorf("%s %s on %s: %w", op, component, m.Name, err)
	}
	return nil
}

// home returns the machine that a component runs on.
func (c *Cluster) home(component string, node int) (*Machine, error) {
	switch component {
	case "etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler":
		return &c.Head, nil
	case "kubelet", "containerd":
		if node == 0 {
			node = 1
		}
		return c.machine(node)
	case proxyName:
		return c.machine(node)
	}
	return nil, fmt.Errorf("no component %q: there are etcd, kube-apiserver, kube-controller-manager, "+
		"kube-scheduler, kubelet, containerd and, with services, kube-proxy", component)
}

// LogPath is the log of a component, or of a machine's "supervisor".
func (c *Cluster) LogPath(component string, node int) (string, error) {
	if component == "supervisor" {
		m, err := c.machine(node)
		if err != nil {
			return "", err
		}
		return filepath.Join(c.logDir(m), "supervisor.log"), nil
	}
	m, err := c.home(component, node)
	if err != nil {
		return "", err
	}
	return filepath.Join(c.logDir(m), component+".log"), nil
}

// SaveLogs copies all logs, those of pods included, into a folder that it makes.
func (c *Cluster) SaveLogs(dest string) error {
	return os.CopyFS(dest, os.DirFS(filepath.Join(c.Dir, "logs")))
}

// tail is the end of a log, for error messages.
func tail(path string, lines int) string {
	content, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	all := strings.Split(strings.TrimRight(string(content), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
