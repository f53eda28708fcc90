// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"slices"
	"strings"
	"testing"

	"tessera.dev/tests/e2e/bed"
)

// gpuCondition returns the node's condition GPUReady: "True GPUsHealthy: 8 GPUs are healthy".
func gpuCondition(t *testing.T) string {
	t.Helper()
	object, err := bed.Node(node)
	if err != nil {
		t.Fatal(err)
	}
	ready := bed.ConditionOf(object.Status.Conditions, "GPUReady")
	return ready.Status + " " + ready.Reason + ": " + ready.Message
}

// waitCondition waits until the condition GPUReady begins with a text and holds all parts. On the way to this state,
// the condition may have the same reason with another message.
func waitCondition(t *testing.T, start string, parts ...string) {
	t.Helper()
	var last string
	if !bed.Within(bed.PodTimeout, func() bool {
		last = gpuCondition(t)
		missing := func(part string) bool { return !strings.Contains(last, part) }
		return strings.HasPrefix(last, start) && !slices.ContainsFunc(parts, missing)
	}) {
		t.Fatalf("not within %s: condition GPUReady: %s with %q, but %s", bed.PodTimeout, start, parts, last)
	}
}

// nodeEvents returns the messages of the node's Events with one reason, oldest first.
func nodeEvents(t *testing.T, reason string) []string {
	t.Helper()
	text := bed.Kubectl(t, "get", "events", "-n", "default", "--sort-by=.firstTimestamp", "--field-selector",
		"involvedObject.kind=Node,involvedObject.name="+node+",reason="+reason,
		"-o", `jsonpath={range .items[*]}{.message}{"\n"}{end}`)
	return strings.FieldsFunc(text, func(r rune) bool { return r == '\n' })
}

// waitEvent waits for an Event beyond the first `known` of its reason.
func waitEvent(t *testing.T, reason string, known int) string {
	t.Helper()
	var found []string
	bed.Eventually(t, bed.PodTimeout, "an Event "+reason+" on the node", func() bool {
		found = nodeEvents(t, reason)
		return len(found) > known
	})
	return found[len(found)-1]
}

func TestAGPULostWhileAPodRunsIsUnhealthyAndComesBack(t *testing.T) {
	waitCondition(t, "True GPUsHealthy: 8 GPUs are healthy")
	uuid := strings.Split(simgpu(t, "show", "--uuids"), "\n")[5]
	unhealthy, healthy := len(nodeEvents(t, "GPUUnhealthy")), len(nodeEvents(t, "GPUHealthy"))
	t.Cleanup(func() { simgpu(t, "recover", "--gpu", "5"); waitAllocatable(t, gpus) })
	bed.Single("survivor", 1, "--hold", "600").Create(t)
	bed.WaitPhase(t, "survivor", "Running")

	simgpu(t, "inject", "lost", "--gpu", "5")
	waitAllocatable(t, gpus-1)
	waitCondition(t, "False GPUUnhealthy: 1 of 8 GPUs is unhealthy: ", uuid)
	if got := waitEvent(t, "GPUUnhealthy", unhealthy); !strings.Contains(got, uuid) {
		t.Errorf("the Event does not name GPU %s: %s", uuid, got)
	}
	if got := bed.Phase(t, "survivor"); got != "Running" {
		t.Errorf("the pod is %s", got)
	}
	simgpu(t, "recover", "--gpu", "5")
	waitAllocatable(t, gpus)
	waitCondition(t, "True GPUsHealthy")
	if got := waitEvent(t, "GPUHealthy", healthy); !strings.Contains(got, uuid) {
		t.Errorf("the Event does not name GPU %s: %s", uuid, got)
	}
	// The output that users read.
	text := bed.Kubectl(t, "describe", "node", node)
	for _, want := range []string{"GPUsHealthy", "GPUUnhealthy", "tessera-agent"} {
		if !strings.Contains(text, want) {
			t.Errorf("kubectl describe node does not show %s", want)
		}
	}
}

func TestADriverWhoseFilesVanishIsWithdrawnAndComesBack(t *testing.T) {
	const files = bed.DriverRoot + "/usr"
	lost, back := len(nodeEvents(t, "DriverNotReady")), len(nodeEvents(t, "DriverReady"))
	restore := func() { onNode(t, "/bin/sh", "-c", "if [ -e "+files+".away ]; then mv "+files+".away "+files+"; fi") }
	t.Cleanup(func() { restore(); waitAllocatable(t, gpus) })
	pod := bed.Single("through-driver", 1, "--hold", "600").Create(t)
	bed.WaitPhase(t, pod, "Running")

	onNode(t, "mv", files, files+".away")
	waitAllocatable(t, 0)
	// The driver's files in /proc are still there.
	waitCondition(t, "False DriverIncomplete: ", "libnvidia-ml.so.1")
	waitEvent(t, "DriverNotReady", lost)
	if got := bed.Phase(t, pod); got != "Running" {
		t.Errorf("the running pod is %s", got)
	}
	restore()
	waitAllocatable(t, gpus)
	waitCondition(t, "True GPUsHealthy")
	waitEvent(t, "DriverReady", back)
	after := bed.Single("after-driver", 1).Create(t)
	bed.WaitPhase(t, after, "Succeeded")
	bed.RequirePassed(t, after, 1)
}

// labelOf returns a label of the node, "" if missing.
func labelOf(t *testing.T, name string) string {
	t.Helper()
	object, err := bed.Node(node)
	if err != nil {
		t.Fatal(err)
	}
	return object.Metadata.Labels["nvidia.com/gpu."+name]
}

func TestADriverFolderThatIsDeletedAndMadeAnewIsSeen(t *testing.T) {
	containers := func() string {
		return bed.Kubectl(t, "-n", "tessera-system", "get", "pods", "-l", "app.kubernetes.io/name=tessera-agent",
			"-o", "jsonpath={.items[*].status.containerStatuses[*].containerID}")
	}
	devices := func() string { return onNode(t, "/bin/sh", "-c", "ls /dev | grep -c '^nvidia[0-9]' || true") }
	before := containers()
	remake := func(args ...string) {
		simgpu(t, append([]string{"create", "--device-nodes"}, args...)...)
	}
	t.Cleanup(func() {
		bed.Shared.Exec(ctx, 1, bed.Tool("simgpu"), "destroy", "--root", bed.DriverRoot)
		profile, err := pairsProfile()
		if err != nil {
			t.Fatal(err)
		}
		defer os.Remove(profile)
		remake("--profile", profile)
		waitAllocatable(t, gpus)
	})

	simgpu(t, "destroy")
	onNode(t, "test", "!", "-e", bed.DriverRoot)
	waitAllocatable(t, 0)
	waitCondition(t, "False DriverNotReady: ")
	bed.Eventually(t, bed.PodTimeout, "the labels are gone", func() bool {
		return labelOf(t, "present") == "" && labelOf(t, "count") == ""
	})
	bed.Eventually(t, bed.PodTimeout, "the device nodes are gone", func() bool {
		return strings.TrimSpace(devices()) == "0"
	})

	remake("--profile", "h100-sxm5-80gb", "--gpus", "4")
	waitAllocatable(t, 4)
	waitCondition(t, "True GPUsHealthy: 4 GPUs are healthy")
	bed.Eventually(t, bed.PodTimeout, "the labels of the new driver", func() bool {
		return labelOf(t, "present") == "true" && labelOf(t, "count") == "4" &&
			strings.Contains(labelOf(t, "product"), "H100")
	})
	bed.Eventually(t, bed.PodTimeout, "there are device nodes of 4 GPUs", func() bool {
		return strings.TrimSpace(devices()) == "4"
	})
	pod := bed.Single("on-the-new-driver", 4).Create(t)
	bed.WaitPhase(t, pod, "Succeeded")
	bed.RequirePassed(t, pod, 4)
	if after := containers(); after != before {
		t.Errorf("the agent's container was restarted: %s, before %s", after, before)
	}
}
