// SPDX-License-Identifier: Apache-2.0

// Package cluster runs a real Kubernetes cluster on one machine, for tests and for a first look:
// etcd, kube-apiserver, kube-controller-manager, kube-scheduler, and nodes with a kubelet, containerd
// and runc of their own. It needs root. It is not for production, and knows nothing about GPUs.
//
// Each machine of the cluster, the control plane and every node, is a set of namespaces (PID, mount,
// network, UTS, IPC, cgroup) held by one supervisor process. Nothing outside them changes, except a
// folder, a cgroup, and a listener on a loopback address for the API server. Several clusters run side
// by side when their folders differ.
//
// A Cluster's methods may be called from several goroutines. Every wait is bounded; an error names the
// component that failed, quotes the end of its log and says where the log is.
package cluster

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"tessera.dev/tests/cluster/internal/cgroup"
	"tessera.dev/tests/cluster/internal/parts"
	"tessera.dev/tests/cluster/internal/supervisor"
)

const (
	// DefaultRoot holds the folders of clusters whose options have a name but no folder.
	DefaultRoot = "/var/lib/tessera-cluster"
	// PauseImage is the sandbox image of every node.
	PauseImage = "tessera.test/pause:1"

	stateFile     = "cluster.json"
	controlName   = "control-plane"
	maxNodes      = 200
	removeTimeout = time.Minute
	lockTimeout   = 15 * time.Minute // longer than a first build
)

// ErrNoCluster means that the folder holds no cluster.
var ErrNoCluster = errors.New("there is no cluster")

// Options of Up. The zero value is a cluster of one node named "default".
type Options struct {
	Name  string    // names its folder below DefaultRoot, if Dir is empty
	Dir   string    // its folder, outside the source tree, on a disk that may be an overlay's upper
	Nodes int       // 1 if 0
	Log   io.Writer // progress, a line each; nil for none
	Tied  bool      // all its processes end when the calling process ends for any reason; Down removes the rest
	Share []string  // more folders that every node shares with the host, at the same paths
	// Services runs kube-proxy on every machine, the control plane included, so that addresses of
	// services work for pods, for kube-scheduler and for the nodes themselves. Without kube-proxy, only
	// the address of the API server's service works.
	Services bool
	// Flags are added to the command lines of components, by name.
	Flags map[string][]string
	// KubeletConfig replaces fields of every KubeletConfiguration, such as topologyManagerPolicy.
	KubeletConfig map[string]any
}

// Cluster is a running cluster.
type Cluster struct {
	Dir   string `json:"dir"`
	Group string `json:"group"` // its cgroup, below each hierarchy's root
	Port  int    `json:"port"`  // of the API server on 127.0.0.1
	Ready bool   `json:"ready"` // Up has completed
	// Snapshotter of containerd: overlayfs, or native if the cluster's folder is itself on an overlay.
	Snapshotter string      `json:"snapshotter"`
	Parts       parts.Parts `json:"parts"`
	Head        Machine     `json:"head"`
	Nodes       []Machine   `json:"nodes"`
	Services    bool        `json:"services"` // kube-proxy runs

	log     io.Writer
	tie     *os.File // kept open for as long as the process lives
	options Options
}

// Machine is the control plane or a node.
type Machine struct {
	Name string `json:"name"` // control-plane, n1, n2, …
	PID  int    `json:"pid"`  // of its supervisor, as the host sees it
	IP   string `json:"ip"`
}

// Component is the state of one program of the cluster.
type Component struct {
	Machine string
	supervisor.State
}

// Build builds what the cache lacks, so that a later Up takes seconds.
func Build(ctx context.Context, log io.Writer) error {
	_, err := parts.Build(ctx, log)
	return err
}

// BuildHelm builds Helm alone, and returns its path.
func BuildHelm(ctx context.Context, log io.Writer) (string, error) { return parts.BuildHelm(ctx, log) }

// BuildCRIO builds CRI-O, which no cluster has, for tests of engines.
func BuildCRIO(ctx context.Context, log io.Writer) error { return parts.BuildCRIO(ctx, log) }

// Folder returns the directory of a cluster with these options.
func (o Options) Folder() (string, error) {
	if o.Dir != "" {
		return filepath.Abs(o.Dir)
	}
	name := o.Name
	if name == "" {
		name = "default"
	}
	if strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
		return "", fmt.Errorf("cluster name %q: only a-z, 0-9 and - are allowed", name)
	}
	return filepath.Join(DefaultRoot, name), nil
}

// Open finds the cluster in the folder, running or not. ErrNoCluster if there is none.
func Open(dir string) (*Cluster, error) {
	content, err := os.ReadFile(filepath.Join(dir, stateFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w in %s: scripts/quickstart starts its own, testcluster up any other", ErrNoCluster, dir)
	}
	if err != nil {
		return nil, err
	}
	c := &Cluster{log: io.Discard}
	if err := json.Unmarshal(content, c); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, stateFile), err)
	}
	return c, nil
}

// save replaces the state file atomically, so that Down always finds a complete one.
func (c *Cluster) save() error {
	content, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return err
	}
	temp := filepath.Join(c.Dir, stateFile+".new")
	if err := os.WriteFile(temp, content, 0o600); err != nil {
		return err
	}
	return os.Rename(temp, filepath.Join(c.Dir, stateFile))
}

// groupName returns a cgroup name that is unique to the cluster's directory.
func groupName(dir string) string {
	sum := sha256.Sum256([]byte(dir))
	return "tessera-cluster-" + hex.EncodeToString(sum[:4])
}

func (c *Cluster) say(format string, args ...any) { fmt.Fprintf(c.log, format+"\n", args...) }

// Kubeconfig returns the path of an administrator's kubeconfig, usable anywhere on this host.
func (c *Cluster) Kubeconfig() string { return filepath.Join(c.Dir, "kubeconfig") }

// BinDir holds kubectl and ctr for the PATH of callers.
func (c *Cluster) BinDir() string { return filepath.Join(c.Dir, "bin") }

// Env returns the environment of programs that use the cluster. kubectl keeps its cache in the cluster's directory.
func (c *Cluster) Env() []string {
	return []string{
		"KUBECONFIG=" + c.Kubeconfig(), "KUBECACHEDIR=" + filepath.Join(c.Dir, "kubectl-cache"),
		"PATH=" + c.BinDir() + ":" + os.Getenv("PATH"),
	}
}

// KubectlCommand prepares kubectl; the caller sets its streams and runs it.
func (c *Cluster) KubectlCommand(ctx context.Context, args ...string) *exec.Cmd {
	return c.clientCommand(ctx, "kubectl", args)
}

// HelmCommand prepares helm; the caller sets its streams and runs it.
func (c *Cluster) HelmCommand(ctx context.Context, args ...string) *exec.Cmd {
	return c.clientCommand(ctx, "helm", args)
}

func (c *Cluster) clientCommand(ctx context.Context, program string, args []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(c.BinDir(), program), args...)
	cmd.Env = append(os.Environ(), "HTTPS_PROXY=", "https_proxy=", "HTTP_PROXY=", "http_proxy=")
	cmd.Env = append(cmd.Env, c.Env()...)
	return cmd
}

// Kubectl runs kubectl and returns its standard output. The error holds its standard error.
func (c *Cluster) Kubectl(ctx context.Context, args ...string) (string, error) {
	return output(c.KubectlCommand(ctx, args...), "kubectl "+strings.Join(args, " "))
}

// Helm runs helm and returns its standard output. The error holds its standard error.
func (c *Cluster) Helm(ctx context.Context, args ...string) (string, error) {
	return output(c.HelmCommand(ctx, args...), "helm "+strings.Join(args, " "))
}

// Apply passes YAML or JSON to kubectl apply.
func (c *Cluster) Apply(ctx context.Context, manifest string) error {
	cmd := c.KubectlCommand(ctx, "apply", "-f", "-")
	cmd.Stdin = strings.NewReader(manifest)
	_, err := output(cmd, "kubectl apply")
	return err
}

func output(cmd *exec.Cmd, what string) (string, error) {
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("%s: %w: %s", what, err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}

// joinAndRun is a script that moves itself into the cgroups whose files are its arguments before "--", and then
// runs the command behind "--". It joins from outside, because with cgroup version 2 a process cannot move into
// a group outside its own cgroup namespace.
const joinAndRun = `while [ "$1" != -- ]; do echo $$ >"$1" || exit 125; shift; done; shift; exec "$@"`

// NodeCommand prepares a command that runs in all namespaces and cgroups of node i (from 1), or of the
// control plane (0), with a fresh environment. The caller sets its streams and runs it. Killing it also
// kills the command in the node.
func (c *Cluster) NodeCommand(ctx context.Context, node int, argv ...string) (*exec.Cmd, error) {
	m, err := c.machine(node)
	if err != nil {
		return nil, err
	}
	if m.PID == 0 {
		return nil, fmt.Errorf("%s of the cluster in %s is not running", m.Name, c.Dir)
	}
	args := []string{"-c", joinAndRun, "sh"}
	groups, err := cgroup.Mounts()
	if err != nil {
		return nil, err
	}
	for _, group := range groups {
		args = append(args, filepath.Join(group.Path, c.Group, m.Name, supervisor.SystemGroup, "cgroup.procs"))
	}
	args = append(args, "--", "nsenter", "-t", strconv.Itoa(m.PID), "-m", "-u", "-i", "-n", "-p", "-C", "--",
		"setpriv", "--pdeathsig", "KILL")
	cmd := exec.CommandContext(ctx, "/bin/sh", append(args, argv...)...)
	cmd.Env = append(supervisor.Environment(), "TERM="+os.Getenv("TERM"))
	return cmd, nil
}

// Exec runs a command in a node and returns its standard output. The error holds its standard error.
func (c *Cluster) Exec(ctx context.Context, node int, argv ...string) (string, error) {
	cmd, err := c.NodeCommand(ctx, node, argv...)
	if err != nil {
		return "", err
	}
	return output(cmd, fmt.Sprintf("node %d: %s", node, strings.Join(argv, " ")))
}

func (c *Cluster) machine(node int) (*Machine, error) {
	if node == 0 {
		return &c.Head, nil
	}
	if node < 0 || node > len(c.Nodes) {
		return nil, fmt.Errorf("no node %d: the cluster in %s has %d", node, c.Dir, len(c.Nodes))
	}
	return &c.Nodes[node-1], nil
}

func (c *Cluster) machines() []*Machine {
	all := []*Machine{&c.Head}
	for i := range c.Nodes {
		all = append(all, &c.Nodes[i])
	}
	return all
}

func (c *Cluster) pki(file string) string       { return filepath.Join(c.Dir, "pki", file) }
func (c *Cluster) machineDir(m *Machine) string { return filepath.Join(c.Dir, "machines", m.Name) }
func (c *Cluster) logDir(m *Machine) string     { return filepath.Join(c.Dir, "logs", m.Name) }
func (c *Cluster) socket(m *Machine) string     { return filepath.Join(c.machineDir(m), "supervisor.sock") }
