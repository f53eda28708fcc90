// SPDX-License-Identifier: Apache-2.0

// Command scheduler measures tessera-scheduler on a real API server. Its thousands of nodes exist only as
// objects with the agent's annotation. Pods, also only objects, hold half of their GPUs.
//
//	scheduler [--nodes 5000] [--running 20000] [--pods 1000]   at the extender's own socket
//	scheduler --through [--nodes 1000] [--pods 500]            through kube-scheduler, beside the same
//	                                                           pods without an extender
//
// It starts a cluster of its own and removes it. It needs root, and the release build.
package main

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	cluster "tessera.dev/tests/cluster"
)

type options struct {
	nodes, running, pods int
	through              bool
	program              string // tessera-scheduler
}

func main() {
	_, file, _, _ := runtime.Caller(0)
	root := filepath.Join(filepath.Dir(file), "../../..")
	var o options
	var drive string
	flag.IntVar(&o.nodes, "nodes", 0, "nodes of 8 GPUs; default: 5000, or 1000 with --through")
	flag.IntVar(&o.running, "running", -1, "pods of one GPU that run already; default: four for each node")
	flag.IntVar(&o.pods, "pods", 0, "pods to place; default: 1000, or 500 with --through")
	flag.BoolVar(&o.through, "through", false, "through kube-scheduler")
	flag.StringVar(&o.program, "program", filepath.Join(root, "build/release/bin/tessera-scheduler"), "the program to measure")
	flag.StringVar(&drive, "drive", "", "internal: runs the part inside the control plane, with this kubeconfig")
	flag.Parse()
	o.nodes = orDefault(o.nodes, o.through, 1000, 5000)
	o.pods = orDefault(o.pods, o.through, 500, 1000)
	if o.running < 0 {
		o.running = 4 * o.nodes
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	switch {
	case drive != "" && o.through:
		err = serve(ctx, o, drive)
	case drive != "":
		err = driveExtender(ctx, o, drive)
	default:
		err = run(ctx, o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "scheduler:", err)
		os.Exit(1)
	}
}

// orDefault returns the given value, or else the default for this mode.
func orDefault(given int, through bool, withThrough, withoutThrough int) int {
	if given > 0 {
		return given
	}
	if through {
		return withThrough
	}
	return withoutThrough
}

// bench is a cluster with its objects.
type bench struct {
	options
	cluster *cluster.Cluster
	client  *http.Client
	inside  string // a kubeconfig for programs on the control plane
}

func run(ctx context.Context, o options) error {
	c, err := cluster.Up(ctx, cluster.Options{Name: "bench-scheduler", Nodes: 1, Log: os.Stderr, Tied: true,
		Flags: map[string][]string{"kube-apiserver": {"--max-requests-inflight=2000", "--max-mutating-requests-inflight=2000"}}})
	if err != nil {
		return err
	}
	defer c.Down()
	b := &bench{options: o, cluster: c}
	if b.client, err = c.HTTPClient(); err != nil {
		return err
	}
	b.client.Timeout = 0
	transport := b.client.Transport.(*http.Transport)
	transport.DisableKeepAlives, transport.ForceAttemptHTTP2 = false, true
	if err := b.prepare(ctx); err != nil {
		return err
	}
	if o.through {
		return b.through(ctx)
	}
	if err := b.createPods(ctx, "new", o.pods); err != nil {
		return err
	}
	list, err := b.request(ctx, "GET", "/api/v1/namespaces/"+namespace+"/pods?fieldSelector=spec.nodeName=", "", nil)
	if err != nil {
		return err
	}
	if err := os.WriteFile(waitingFile(b.inside), list, 0o600); err != nil {
		return err
	}
	cmd, err := b.insideCommand(ctx)
	if err != nil {
		return err
	}
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd.Run()
}

// insideCommand prepares this program for a run on the control plane, where kube-scheduler runs, too.
func (b *bench) insideCommand(ctx context.Context) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return b.cluster.NodeCommand(ctx, 0, self, "--drive="+b.inside, fmt.Sprintf("--through=%t", b.options.through),
		"--program="+b.program, fmt.Sprintf("--nodes=%d", b.nodes), fmt.Sprintf("--pods=%d", b.pods))
}

// prepare stops the controllers that would treat the nodes as dead, and makes nodes and running pods.
func (b *bench) prepare(ctx context.Context) error {
	for _, component := range []string{"kube-controller-manager", "kube-scheduler"} {
		if err := b.cluster.Stop(ctx, component, 0); err != nil {
			return err
		}
	}
	if err := b.cluster.Stop(ctx, "kubelet", 1); err != nil {
		return err
	}
	if _, err := b.cluster.Kubectl(ctx, "delete", "node", "n1"); err != nil {
		return err
	}
	content, err := os.ReadFile(b.cluster.Kubeconfig())
	if err != nil {
		return err
	}
	b.inside = filepath.Join(b.cluster.Dir, "inside.kubeconfig")
	text := strings.ReplaceAll(string(content), b.cluster.URL(), "https://10.250.0.1:443")
	if err := os.WriteFile(b.inside, []byte(text), 0o600); err != nil {
		return err
	}
	if err := b.createNodes(ctx); err != nil {
		return err
	}
	return b.createRunning(ctx)
}
