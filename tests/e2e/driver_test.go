// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"

	"tessera.dev/tests/e2e/bed"
)

const startupTaint = "tessera.dev/not-ready"

// taintKeys returns the keys of the node's taints, in order.
func taintKeys(t *testing.T) (keys []string) {
	t.Helper()
	object, err := bed.Node(node)
	if err != nil {
		t.Fatal(err)
	}
	for _, taint := range object.Spec.Taints {
		keys = append(keys, taint.Key)
	}
	return keys
}

func setTaints(t *testing.T, keys ...string) {
	t.Helper()
	taints := []bed.Object{}
	for _, key := range keys {
		taints = append(taints, bed.Object{"key": key, "effect": "NoSchedule"})
	}
	patch := bed.Object{"spec": bed.Object{"taints": taints}}
	if err := bed.Call(http.MethodPatch, "/api/v1/nodes/"+node, patch, nil); err != nil {
		t.Fatal(err)
	}
}

func restartAgent(t *testing.T) {
	t.Helper()
	before := bed.AgentOf(node)
	bed.Kubectl(t, "-n", "tessera-system", "delete", before, "--wait=true")
	bed.Eventually(t, bed.PodTimeout, "another agent", func() bool {
		now := bed.AgentOf(node)
		return now != "" && now != before
	})
	bed.Kubectl(t, "-n", "tessera-system", "rollout", "status", "daemonset/tessera-agent", "--timeout=180s")
}

func TestAStartupTaintLeavesAfterTheSmokeTestAndOthersStay(t *testing.T) {
	const files = bed.DriverRoot + "/usr"
	restore := func() { onNode(t, "/bin/sh", "-c", "if [ -e "+files+".away ]; then mv "+files+".away "+files+"; fi") }
	t.Cleanup(func() { restore(); setTaints(t); waitAllocatable(t, gpus) })

	// The node joins before its driver is installed.
	onNode(t, "mv", files, files+".away")
	waitAllocatable(t, 0)
	// The usual taint of nodes with GPUs, which the agent tolerates.
	const other, cloud = "nvidia.com/gpu", "startup-taint.cluster-autoscaler.kubernetes.io/tessera-not-ready"
	setTaints(t, startupTaint, other, cloud)
	restartAgent(t)
	waitCondition(t, "False DriverIncomplete: ")
	if got := strings.Join(taintKeys(t), " "); got != startupTaint+" "+other+" "+cloud {
		t.Errorf("without a driver the taints are %q", got)
	}
	pod := bed.Single("waits-for-gpus", 1).Create(t)
	restore()
	bed.Eventually(t, bed.PodTimeout, "only the other taint is left", func() bool {
		return strings.Join(taintKeys(t), " ") == other
	})
	waitCondition(t, "True GPUsHealthy")
	if got := bed.Phase(t, pod); got != "Pending" {
		t.Errorf("the node still has a taint of another owner, but the pod is %s", got)
	}
	setTaints(t)
	bed.WaitPhase(t, pod, "Succeeded")
	bed.RequirePassed(t, pod, 1)
}

// startDriver runs the simulated driver container on the node. The container tolerates every taint, and runs
// until the returned function is called or the test ends.
func startDriver(t *testing.T, name string, args ...string) (stop func()) {
	t.Helper()
	text, err := json.Marshal(bed.Object{"apiVersion": "v1", "kind": "Pod",
		"metadata": bed.Object{"name": name, "namespace": "default"},
		"spec": bed.Object{"nodeName": node, "restartPolicy": "Always", "terminationGracePeriodSeconds": 5,
			"tolerations": []bed.Object{{"operator": "Exists"}},
			"containers": []bed.Object{{"name": "driver", "image": "tessera.dev/tests/driver:dev", "imagePullPolicy": "Never",
				"args": args, "volumeMounts": []bed.Object{{"name": "node", "mountPath": "/node"}}}},
			"volumes": []bed.Object{{"name": "node", "hostPath": bed.Object{"path": "/run/nvidia"}}}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := bed.Shared.Apply(ctx, string(text)); err != nil {
		t.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		bed.Kubectl(t, "delete", "pod", name, "--wait=true")
		onNode(t, "rm", "-rf", bed.DriverRoot)
	})
	t.Cleanup(stop)
	return stop
}

func TestANodeComesUpWithItsDriverContainerAndReportsWhatABadOneLacks(t *testing.T) {
	profile, err := pairsProfile()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		setTaints(t)
		simgpu(t, "create", "--device-nodes", "--profile", profile, "--force")
		os.Remove(profile)
		bed.UpgradeChart(t)
		waitAllocatable(t, gpus)
	})
	// With this default, the agent looks for the driver in the host's root first, and then in the root of a
	// driver container.
	bed.UpgradeChart(t, "--set", "agent.driverRoot=/")
	simgpu(t, "destroy")
	// Allocatable is also 0 for a moment while the agent is replaced, so wait for the condition of the new agent.
	waitCondition(t, "False DriverNotReady: ")
	bed.WaitStatusSays(t, "DriverNotReady: ", "fix: install the driver")
	setTaints(t, startupTaint)
	agent := bed.AgentOf(node)

	for mode, want := range map[string]string{
		"fails": "the kernel module is not loaded: see the log of the driver container",
		"hangs": "the kernel module is not loaded: see the log of the driver container",
		"half":  "has no libcuda.so.1",
	} {
		stop := startDriver(t, "driver-"+mode, mode)
		waitCondition(t, "False DriverIncomplete: ", want)
		bed.WaitStatusSays(t, "DriverIncomplete: ", "fix: see the log of the driver container")
		if got := taintKeys(t); len(got) != 1 {
			t.Errorf("%s: the startup taint is gone", mode)
		}
		// No container could use these GPUs. The kubelet publishes the plugin's report up to ten seconds later.
		waitAllocatable(t, 0)
		stop()
		waitCondition(t, "False DriverNotReady: ")
	}

	stop := startDriver(t, "driver-slow", "good", "--after=5s", "--", "--profile", "h100-sxm5-80gb", "--gpus", "4")
	pod := bed.Single("with-driver-container", 2).Create(t)
	waitAllocatable(t, 4)
	bed.WaitPhase(t, pod, "Succeeded")
	bed.RequirePassed(t, pod, 2)
	if got := taintKeys(t); len(got) != 0 {
		t.Errorf("the taints are %v", got)
	}
	ready := onNode(t, "cat", "/run/nvidia/validations/driver-ready")
	if !strings.Contains(ready, "IS_HOST_DRIVER=false\nNVIDIA_DRIVER_ROOT=/run/nvidia/driver\n") {
		t.Errorf("driver-ready is %q", ready)
	}
	onNode(t, "test", "-e", "/run/nvidia/validations/toolkit-ready", "-a", "-e", "/run/nvidia/validations/plugin-ready")
	stop()
	waitAllocatable(t, 0)
	waitCondition(t, "False DriverNotReady: ")
	bed.Eventually(t, bed.PodTimeout, "driver-ready is gone", func() bool {
		_, err := bed.Shared.Exec(ctx, 1, "test", "!", "-e", "/run/nvidia/validations/driver-ready")
		return err == nil
	})
	if got := bed.AgentOf(node); got != agent {
		t.Errorf("the agent's pod was replaced: %s, before %s", got, agent)
	}
}
