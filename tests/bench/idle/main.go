// SPDX-License-Identifier: Apache-2.0

// Command idle counts the requests of an idle agent to a real API server, and measures the agent's
// memory. It starts a cluster of one node, and on that node tessera-agent with simulated GPUs, registered
// at the real kubelet. A proxy between agent and API server counts the requests. A watch counts each time
// that it is opened.
//
//	idle [--minutes 20]
//
// It removes the cluster afterwards. It needs root, and the release build.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	cluster "tessera.dev/tests/cluster"
)

type options struct {
	build   string        // folder of the release build
	gpus    int           // of the node
	settle  time.Duration // time before the count starts
	minutes int
	inside  string // a kubeconfig, for the part on the node
}

func main() {
	_, file, _, _ := runtime.Caller(0)
	var o options
	flag.StringVar(&o.build, "build", filepath.Join(filepath.Dir(file), "../../../build/release"), "folder of the release build")
	flag.IntVar(&o.gpus, "gpus", 8, "GPUs of the node")
	flag.DurationVar(&o.settle, "settle", time.Minute, "how long the agent may get ready before requests count")
	flag.IntVar(&o.minutes, "minutes", 20, "how long requests are counted; watches end after five to ten")
	flag.StringVar(&o.inside, "inside", "", "internal: runs the part on the node, with this kubeconfig")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	if o.inside != "" {
		err = measure(ctx, o)
	} else {
		err = run(ctx, o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "idle:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	c, err := cluster.Up(ctx, cluster.Options{Name: "bench-idle", Nodes: 1, Log: os.Stderr, Tied: true})
	if err != nil {
		return err
	}
	defer c.Down()
	config, err := os.ReadFile(c.Kubeconfig())
	if err != nil {
		return err
	}
	inside := filepath.Join(c.Dir, "inside.kubeconfig")
	text := strings.ReplaceAll(string(config), c.URL(), "https://10.250.0.1:443")
	if err := os.WriteFile(inside, []byte(text), 0o600); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd, err := c.NodeCommand(ctx, 1, self, "--inside="+inside, "--build="+o.build, fmt.Sprintf("--gpus=%d", o.gpus),
		"--settle="+o.settle.String(), fmt.Sprintf("--minutes=%d", o.minutes))
	if err != nil {
		return err
	}
	cmd.Env = append(os.Environ(), "PATH="+c.BinDir()+":"+os.Getenv("PATH"))
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd.Run()
}
