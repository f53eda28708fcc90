// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
)

// LoadImage imports an image archive into containerd of the named nodes, or of all nodes if none is named. The
// nodes import at the same time, because each has its own store.
func (c *Cluster) LoadImage(ctx context.Context, file string, nodes ...int) error {
	if len(nodes) == 0 {
		for i := range c.Nodes {
			nodes = append(nodes, i+1)
		}
	}
	errs := make([]error, len(nodes))
	var wait sync.WaitGroup
	for i, node := range nodes {
		wait.Go(func() { errs[i] = c.loadImage(ctx, file, node) })
	}
	wait.Wait()
	return errors.Join(errs...)
}

func (c *Cluster) loadImage(ctx context.Context, file string, node int) error {
	archive, err := os.Open(file)
	if err != nil {
		return err
	}
	defer archive.Close()
	cmd, err := c.NodeCommand(ctx, node, "ctr", "-n", "k8s.io", "images", "import", "--local",
		"--snapshotter", c.Snapshotter, "-")
	if err != nil {
		return err
	}
	cmd.Stdin = archive
	_, err = output(cmd, fmt.Sprintf("node %d: import %s", node, file))
	return err
}
