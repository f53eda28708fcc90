// SPDX-License-Identifier: Apache-2.0

// Command install measures how long "tessera install --wait" takes on a cluster of three nodes with
// simulated GPUs, whose images are on the nodes: until the agents, the scheduler and the webhook work,
// and until each node offers its GPUs. Between the rounds "tessera uninstall" removes everything.
//
//	install [--rounds 10]
//
// It removes the cluster afterwards. It needs root, and the release build.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	cluster "tessera.dev/tests/cluster"
)

const (
	nodes  = 3
	gpus   = 8 // of each node
	target = 10 * time.Second
)

func main() {
	_, file, _, _ := runtime.Caller(0)
	root := flag.String("root", filepath.Join(filepath.Dir(file), "../../.."), "the source tree, with its release build")
	rounds := flag.Int("rounds", 10, "installations")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *root, *rounds); err != nil {
		fmt.Fprintln(os.Stderr, "install:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, root string, rounds int) error {
	c, err := cluster.Up(ctx, cluster.Options{Name: "bench-install", Nodes: nodes, Log: os.Stderr, Tied: true})
	if err != nil {
		return err
	}
	defer c.Down()
	if err := prepare(ctx, c, root); err != nil {
		return err
	}
	var ready, offered []time.Duration
	for range rounds {
		began := time.Now()
		if err := tessera(ctx, c, root, "install", "-f", filepath.Join(root, "deploy/simulated/values.yaml"), "--wait", "--timeout=60"); err != nil {
			return err
		}
		ready = append(ready, time.Since(began))
		if err := waitOffered(ctx, c); err != nil {
			return err
		}
		offered = append(offered, time.Since(began))
		if err := tessera(ctx, c, root, "uninstall", "--force"); err != nil {
			return err
		}
	}
	fmt.Printf("tessera install on %d nodes with %d GPUs, images present, %d rounds; target %s\n", nodes, gpus, rounds, target)
	show("all components work", ready)
	show("each node offers its GPUs", offered)
	return nil
}

// prepare gives each node simulated GPUs and the images.
func prepare(ctx context.Context, c *cluster.Cluster, root string) error {
	for i := range nodes {
		if _, err := c.Exec(ctx, i+1, filepath.Join(root, "build/release/bin/simgpu"), "create", "--profile", "a100-sxm4-80gb",
			"--gpus", fmt.Sprint(gpus), "--root", "/run/nvidia/driver", "--device-nodes"); err != nil {
			return err
		}
	}
	images, err := os.MkdirTemp("", "bench-images")
	if err != nil {
		return err
	}
	defer os.RemoveAll(images)
	if text, err := exec.CommandContext(ctx, filepath.Join(root, "scripts/images"), images).CombinedOutput(); err != nil {
		return fmt.Errorf("scripts/images: %w: %s", err, text)
	}
	for _, image := range []string{"agent", "scheduler"} {
		if err := c.LoadImage(ctx, filepath.Join(images, image+".tar")); err != nil {
			return err
		}
	}
	return nil
}

func tessera(ctx context.Context, c *cluster.Cluster, root string, args ...string) error {
	command := exec.CommandContext(ctx, filepath.Join(root, "build/release/bin/tessera"), append(args, "--kubeconfig", c.Kubeconfig())...)
	if text, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("tessera %s: %w: %s", args[0], err, text)
	}
	return nil
}

func waitOffered(ctx context.Context, c *cluster.Cluster) error {
	want := strings.Repeat(fmt.Sprintf("%d ", gpus), nodes)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		got, err := c.Kubectl(ctx, "get", "nodes", "-o", `jsonpath={range .items[*]}{.status.allocatable.nvidia\.com/gpu} {end}`)
		if err == nil && got == want {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the nodes offer %q, not %q: %v", got, want, err)
		}
	}
}

func show(what string, times []time.Duration) {
	slices.Sort(times)
	seconds := func(part float64) float64 { return times[int(part*float64(len(times)-1))].Seconds() }
	fmt.Printf("  %-28s p50 %5.1f s  p90 %5.1f s  max %5.1f s\n", what, seconds(0.5), seconds(0.9), seconds(1))
}
