// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"tessera.dev/tests/e2e/bed"
)

const startupTaint = "tessera.dev/not-ready"

// taintKeys are the keys of the node's taints, in order.
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
	bed.Kubectl(t, "-n", "tessera-system", "delete", bed.AgentOf(node), "--wait=true")
	bed.Kubectl(t, "-n", "tessera-system", "rollout", "status", "daemonset/tessera-agent", "--timeout=60s")
}

func TestAStartupTaintLeavesAfterTheSmokeTestAndOthersStay(t *testing.T) {
	const files = bed.DriverRoot + "/usr"
	restore := func() { onNode(t, "/bin/sh", "-c", "if [ -e "+files+".away ]; then mv "+files+".away "+files+"; fi") }
	t.Cleanup(func() { restore(); setTaints(t); waitAllocatable(t, gpus, time.Minute) })

	// A node that joins before its driver is there.
	onNode(t, "mv", files, files+".away")
	waitAllocatable(t, 0, 30*time.Second)
	const other, cloud = "example.com/mine", "startup-taint.cluster-autoscaler.kubernetes.io/tessera-not-ready"
	setTaints(t, startupTaint, other, cloud)
	restartAgent(t)
	waitCondition(t, "False DriverNotReady: ")
	if got := strings.Join(taintKeys(t), " "); got != startupTaint+" "+other+" "+cloud {
		t.Errorf("without a driver the taints are %q", got)
	}
	pod := bed.Single("waits-for-gpus", 1).Create(t)
	restore()
	bed.Eventually(t, 30*time.Second, "only the other taint is left", func() bool {
		return strings.Join(taintKeys(t), " ") == other
	})
	waitCondition(t, "True GPUsHealthy")
	if got := bed.Phase(t, pod); got != "Pending" {
		t.Errorf("behind a taint of another owner the pod is %s", got)
	}
	setTaints(t)
	bed.WaitPhase(t, pod, "Succeeded")
	bed.Passed(t, pod, 1)
}
