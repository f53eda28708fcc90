// SPDX-License-Identifier: Apache-2.0

package bed

import (
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TryKubectl runs kubectl. Its error holds what kubectl wrote to standard error.
func TryKubectl(args ...string) (string, error) { return Shared.Kubectl(ctx, args...) }

// Kubectl runs kubectl; an error fails the test.
func Kubectl(t *testing.T, args ...string) string {
	t.Helper()
	text, err := TryKubectl(args...)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(text)
}

// OnNode runs a command on node i, from 1.
func OnNode(t *testing.T, i int, argv ...string) string {
	t.Helper()
	text, err := Shared.Exec(ctx, i, argv...)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// Simgpu runs the control tool of the simulated driver on node i, from 1.
func Simgpu(t *testing.T, i int, args ...string) string {
	t.Helper()
	return OnNode(t, i, append([]string{Tool("simgpu")}, append(args, "--root", DriverRoot)...)...)
}

// UUIDs returns the UUIDs of the GPUs of node i, from 1, in the driver's order.
func UUIDs(t *testing.T, i int) []string {
	t.Helper()
	return strings.Fields(Simgpu(t, i, "show", "--uuids"))
}

// Allocatable returns the allocatable amount of a resource, -1 if it cannot be read.
func Allocatable(name, resource string) int {
	node, err := Node(name)
	count, convErr := strconv.Atoi(node.Status.Allocatable[resource])
	if err != nil || convErr != nil {
		return -1
	}
	return count
}

const pollPeriod = 50 * time.Millisecond

// Eventually waits for a check to hold, and ends the test if it does not.
func Eventually(t *testing.T, within time.Duration, what string, check func() bool) {
	t.Helper()
	if !Within(within, check) {
		t.Fatalf("not within %s: %s", within, what)
	}
}

// Within waits for a check to hold, and returns whether it did. A check that runs kubectl takes processor time from the
// cluster for which it waits, so the pause between two checks is at least twice as long as a check.
func Within(limit time.Duration, check func() bool) bool {
	for deadline := time.Now().Add(limit); ; {
		began := time.Now()
		if check() {
			return true
		}
		if time.Now().After(deadline) {
			return false
		}
		time.Sleep(max(pollPeriod, 2*time.Since(began)))
	}
}

// WaitPhase waits until a pod is in a phase, and shows the pod after a timeout.
func WaitPhase(t *testing.T, name, phase string) {
	t.Helper()
	for deadline := time.Now().Add(PodTimeout); ; time.Sleep(pollPeriod) {
		pod := ReadPod(t, name)
		if pod.Status.Phase == phase {
			return
		}
		if time.Now().After(deadline) || (pod.Status.Phase == "Failed" && phase != "Failed") {
			text, _ := Shared.Kubectl(ctx, "describe", "pod", name)
			log, _ := Shared.Kubectl(ctx, "logs", name, "--all-containers", "--ignore-errors")
			// The states of the containers come last, because they show the cause, and CI shows only the end of
			// a long text.
			for _, container := range pod.Status.ContainerStatuses {
				log += fmt.Sprintf("\ncontainer %s: %v", container.Name, container.State)
			}
			t.Fatalf("%s\n%s\npod %s is %s, not %s: %s %s", text, log, name, pod.Status.Phase, phase, pod.Status.Reason, pod.Status.Message)
		}
	}
}

// Phase returns the phase of a pod.
func Phase(t *testing.T, pod string) string {
	t.Helper()
	return ReadPod(t, pod).Status.Phase
}

// Logs returns the logs of a pod's only container, or of the named containers. It waits, because the log of a running
// container may be unavailable for a moment, or the kubelet may be restarting.
func Logs(t *testing.T, pod string, containers ...string) string {
	t.Helper()
	if len(containers) == 0 {
		containers = []string{""}
	}
	var all strings.Builder
	for _, container := range containers {
		var text string
		path := podsPath + "/" + pod + "/log?container=" + container
		err := Call(http.MethodGet, path, nil, &text)
		for deadline := time.Now().Add(PodTimeout); err != nil && time.Now().Before(deadline); time.Sleep(pollPeriod) {
			err = Call(http.MethodGet, path, nil, &text)
		}
		if err != nil {
			t.Fatal(err)
		}
		all.WriteString(text)
	}
	return strings.TrimSpace(all.String())
}

var uuidPattern = regexp.MustCompile(`GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

// UUIDsIn returns the UUIDs in a vectorAdd log, each once, in order.
func UUIDsIn(text string) []string {
	var found []string
	seen := map[string]bool{}
	for _, uuid := range uuidPattern.FindAllString(text, -1) {
		if !seen[uuid] {
			seen[uuid] = true
			found = append(found, uuid)
		}
	}
	return found
}

// RequirePassed fails the test unless the pod added vectors on that many GPUs, and returns their UUIDs.
func RequirePassed(t *testing.T, pod string, count int) []string {
	t.Helper()
	var containers []string
	for _, container := range ReadPod(t, pod).Spec.Containers {
		containers = append(containers, container.Name)
	}
	text := Logs(t, pod, containers...)
	if !strings.Contains(text, "Test PASSED") {
		t.Fatalf("%s did not print Test PASSED:\n%s", pod, text)
	}
	found := UUIDsIn(text)
	if len(found) != count {
		t.Fatalf("%s saw %d GPUs, not %d:\n%s", pod, len(found), count, text)
	}
	return found
}

// NodeReady returns the status of a node's condition Ready: True, False or Unknown.
func NodeReady(t *testing.T, name string) string {
	t.Helper()
	node, err := Node(name)
	if err != nil {
		t.Fatal(err)
	}
	return ConditionOf(node.Status.Conditions, "Ready").Status
}

// WaitNodeReady waits until the condition Ready of a node has that status.
func WaitNodeReady(t *testing.T, node, status string) {
	t.Helper()
	Eventually(t, PodTimeout, fmt.Sprintf("Ready of node %s is %s", node, status), func() bool {
		return NodeReady(t, node) == status
	})
}
