// SPDX-License-Identifier: Apache-2.0

// Package installs holds the end-to-end tests of every way to install, upgrade and remove Tessera: Helm, the
// tessera command, the operator, and the migration from NVIDIA's operator. The nodes are those of the quickstart.
// The cluster has no Tessera when a test begins and when it ends.
package installs

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	cluster "tessera.dev/tests/cluster"
	"tessera.dev/tests/e2e/bed"
)

var ctx = context.Background()

func TestMain(m *testing.M) {
	nodes, err := bed.DifferentNodes()
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		os.Exit(1)
	}
	os.Exit(bed.Main(m, cluster.Options{Name: "e2e-installs", Services: true,
		KubeletConfig: map[string]any{"crashLoopBackOff": map[string]string{"maxContainerRestartPeriod": "1s"}}},
		nodes, func() error { return nil }))
}

func chartDir() string { return filepath.Join(bed.Root, "deploy/chart") }

func operatorFile(name string) string { return filepath.Join(bed.Root, "deploy/operator", name) }

func helm(t *testing.T, args ...string) string {
	t.Helper()
	text, err := bed.Shared.Helm(ctx, args...)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// status runs "tessera status".
func status(args ...string) (text string, code int) {
	return bed.TryTessera(append([]string{"status"}, args...)...)
}

// waitGPUs waits until these nodes offer all their GPUs.
func waitGPUs(t *testing.T, names ...string) {
	t.Helper()
	for i, node := range bed.Shared.Nodes {
		for _, name := range names {
			if node.Name == name {
				bed.Eventually(t, bed.PodTimeout, name+" offers its GPUs", func() bool {
					return bed.Allocatable(name, bed.WholeGPU) == bed.NodeGPUs[i].Count
				})
			}
		}
	}
}

// waitDefinition waits until the operator has created the definition of its resource.
func waitDefinition(t *testing.T) {
	t.Helper()
	bed.Eventually(t, bed.PodTimeout, "the operator has created its CustomResourceDefinition", func() bool {
		_, err := bed.TryKubectl("wait", "--for=condition=Established", "crd/tesseras.tessera.dev", "--timeout=5s")
		return err == nil
	})
}

// removeAtTheEnd removes Tessera after the test, however the test has installed it.
func removeAtTheEnd(t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		bed.TryKubectl("delete", "tessera", "--all", "--timeout=180s")
		for _, file := range []string{"drivers.yaml", "operator.yaml"} {
			bed.TryKubectl("delete", "-f", operatorFile(file), "--ignore-not-found", "--timeout=180s")
		}
		bed.TryKubectl("delete", "crd/tesseras.tessera.dev", "--ignore-not-found")
		bed.Shared.Helm(ctx, "uninstall", "tessera", "--namespace", "tessera-system", "--ignore-not-found", "--wait",
			"--timeout=180s")
		if text, code := bed.TryTessera("uninstall", "--force"); code != 0 {
			t.Errorf("the uninstall ends with %d: %s", code, text)
		}
	})
}
