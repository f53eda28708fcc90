// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"tessera.dev/tests/e2e/bed"
)

// models are the values of the nodes' label `product`, in the order of the nodes.
var models = []string{"NVIDIA-A100-SXM4-80GB", "Tesla-T4", "NVIDIA-H200"}

// holder returns a pod that keeps one GPU of a model until the pod is deleted.
func holder(name, model string) bed.Pod {
	pod := bed.Single(name, 1, "--hold", "600")
	pod.NodeSelector = map[string]string{product: model}
	return pod
}

func nodeOf(t *testing.T, pod string) string {
	t.Helper()
	return bed.ReadPod(t, pod).Spec.NodeName
}

// held returns the one GPU that a pod reports.
func held(t *testing.T, pod string) string {
	t.Helper()
	return computesOn(t, pod, "main", 1)[0]
}

func TestAPodOfEachModelRunsOnItsNodeWithAGPUOfThatNode(t *testing.T) {
	for i, model := range models {
		holder(fmt.Sprintf("model-%d", i+1), model).Create(t)
	}
	for i := range models {
		name := fmt.Sprintf("model-%d", i+1)
		bed.WaitPhase(t, name, "Running")
		if node := nodeOf(t, name); node != bed.Shared.Nodes[i].Name {
			t.Errorf("a pod for %s runs on %s", models[i], node)
		}
		if uuid := held(t, name); !slices.Contains(bed.UUIDs(t, i+1), uuid) {
			t.Errorf("%s holds %s, which node %d does not have", name, uuid, i+1)
		}
		// kubectl exec goes to the kubelet of that node, as kubectl logs did before.
		text := bed.Kubectl(t, "exec", name, "--", "nvidia-smi", "-L")
		if strings.Contains(text, "\n") || !strings.Contains(strings.ReplaceAll(text, " ", "-"), models[i]) {
			t.Errorf("nvidia-smi in %s shows %q, not one %s", name, text, models[i])
		}
	}
}

func TestNoTwoNodesHaveAGPUInCommon(t *testing.T) {
	seen := map[string]int{}
	for i, gpus := range all {
		uuids := bed.UUIDs(t, i+1)
		if len(uuids) != gpus.Count {
			t.Errorf("node %d has %d GPUs, not %d", i+1, len(uuids), gpus.Count)
		}
		for _, uuid := range uuids {
			if other := seen[uuid]; other != 0 {
				t.Errorf("nodes %d and %d both have %s", other, i+1, uuid)
			}
			seen[uuid] = i + 1
		}
	}
}

func TestANodeThatLeavesKeepsItsPodsAndTakesNewOnesWhenItReturns(t *testing.T) {
	const index, node = 2, "n2"
	model := models[index-1]
	holder("stays", model).Create(t)
	bed.WaitPhase(t, "stays", "Running")
	uuid := held(t, "stays")

	if err := bed.Shared.Stop(ctx, "kubelet", index, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { bed.Shared.Start(ctx, "kubelet", index) })
	bed.WaitNodeReady(t, node, "Unknown")
	// The taint that excludes the node from scheduling follows the condition after a moment.
	bed.Eventually(t, bed.PodTimeout, "the node is tainted as unreachable", func() bool {
		object, err := bed.Node(node)
		return err == nil && slices.Contains(object.Spec.Taints, bed.Taint{Key: "node.kubernetes.io/unreachable", Effect: "NoSchedule"})
	})
	holder("waits", model).Create(t)
	bed.Eventually(t, bed.PodTimeout, "the pod cannot be scheduled", func() bool {
		return bed.ConditionOf(bed.ReadPod(t, "waits").Status.Conditions, "PodScheduled").Reason == "Unschedulable"
	})

	if err := bed.Shared.Start(ctx, "kubelet", index); err != nil {
		t.Fatal(err)
	}
	bed.WaitNodeReady(t, node, "True")
	bed.WaitPhase(t, "waits", "Running")
	if other := held(t, "waits"); other == uuid {
		t.Errorf("both pods hold %s", uuid)
	}
	bed.Untouched(t, "after the node returned", "stays")
	bed.Eventually(t, bed.PodTimeout, "the node offers all its GPUs again", func() bool {
		return bed.Allocatable(node, bed.WholeGPU) == all[index-1].Count
	})
}
