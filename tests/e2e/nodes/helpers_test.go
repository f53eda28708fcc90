// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"tessera.dev/tests/e2e/bed"
)

const (
	gpuMem      = "aliyun.com/gpu-mem"
	vcudaCore   = "tencent.com/vcuda-core"
	vcudaMemory = "tencent.com/vcuda-memory"
	ours        = "/api/v1/namespaces/tessera-system"
)

// onT4 chooses node n2, which has four T4 of 15 GiB. onH200 chooses node n3, which has two H200 of 140 GiB.
var (
	onT4   = map[string]string{product: models[1]}
	onH200 = map[string]string{product: models[2]}
)

// share is a container's part of one GPU in an assignment.
type share struct {
	GPU   string `json:"gpu"`
	Milli int    `json:"milli"`
	Bytes int64  `json:"bytes"`
}

// assigned returns the pod's assignment annotation, by container.
func assigned(t *testing.T, pod string) map[string][]share {
	t.Helper()
	text := bed.ReadPod(t, pod).Metadata.Annotations["tessera.dev/assignment"]
	var assignment struct{ Containers map[string][]share }
	if err := json.Unmarshal([]byte(text), &assignment); err != nil {
		t.Fatalf("pod %s: assignment %q: %v", pod, text, err)
	}
	return assignment.Containers
}

// holding returns a container that holds its GPUs until it is deleted.
func holding(name string, limits map[string]int) bed.Container {
	return bed.Container{Name: name, Limits: limits, Args: []string{"--hold", "600"}}
}

// sharing returns a pod with one container made by `holding`.
func sharing(name string, limits map[string]int) bed.Pod {
	return bed.Pod{Name: name, Containers: []bed.Container{holding("main", limits)}}
}

// computesOn waits until a container names as many GPUs as are wanted, and returns them.
func computesOn(t *testing.T, pod, container string, count int) []string {
	t.Helper()
	var found []string
	bed.Eventually(t, bed.PodTimeout, pod+" names its GPUs", func() bool {
		found = bed.UUIDsIn(bed.Logs(t, pod, container))
		return len(found) == count
	})
	return found
}

// checkGPUs waits until each container has printed its GPUs. It checks that these are the GPUs in the pod's
// annotation, and that no GPU is given out beyond its memory and compute.
func checkGPUs(t *testing.T, pods []string, gpuBytes map[string]int64) {
	t.Helper()
	milli, bytes, whole := map[string]int{}, map[string]int64{}, map[string]int{}
	for _, pod := range pods {
		bed.WaitPhase(t, pod, "Running")
		for container, shares := range assigned(t, pod) {
			var want []string
			for _, s := range shares {
				want = append(want, s.GPU)
				milli[s.GPU] += s.Milli
				if s.Milli == 1000 {
					whole[s.GPU]++
				} else {
					bytes[s.GPU] += s.Bytes
				}
			}
			if got := computesOn(t, pod, container, len(want)); !sameSet(got, want) {
				t.Errorf("%s/%s was assigned %v and has %v", pod, container, want, got)
			}
		}
	}
	for gpu := range milli {
		if milli[gpu] > 1000 || (whole[gpu] > 0 && (whole[gpu] > 1 || bytes[gpu] > 0)) || bytes[gpu] > gpuBytes[gpu] {
			t.Errorf("%s is oversubscribed: %d thousandths, %d bytes, %d whole", gpu, milli[gpu], bytes[gpu], whole[gpu])
		}
	}
}

// sizes returns the device memory of all GPUs, by UUID, from the nodes' annotations.
func sizes(t *testing.T) map[string]int64 {
	t.Helper()
	all := map[string]int64{}
	for _, node := range []string{"n1", "n2", "n3"} {
		object, err := bed.Node(node)
		if err != nil {
			t.Fatal(err)
		}
		var inventory struct {
			GPUs []struct {
				UUID  string
				Bytes int64
			}
		}
		if err := json.Unmarshal([]byte(object.Metadata.Annotations["tessera.dev/devices"]), &inventory); err != nil {
			t.Fatal(err)
		}
		for _, gpu := range inventory.GPUs {
			all[gpu.UUID] = gpu.Bytes
		}
	}
	return all
}

func sameSet(a, b []string) bool {
	a, b = slices.Clone(a), slices.Clone(b)
	slices.Sort(a)
	slices.Sort(b)
	return slices.Equal(a, b)
}

// waitsFor returns kube-scheduler's reason why a pod is not scheduled.
func waitsFor(t *testing.T, pod string) string {
	t.Helper()
	return bed.ConditionOf(bed.ReadPod(t, pod).Status.Conditions, "PodScheduled").Message
}

func waitBound(t *testing.T, pod string) {
	t.Helper()
	bed.Eventually(t, bed.PodTimeout, pod+" is bound", func() bool { return nodeOf(t, pod) != "" })
}

// leaseHolder returns the identity of the replica of tessera-scheduler that leads: the name of its pod, "_", and
// more. It is "" if no replica leads or the API server does not answer.
func leaseHolder() string {
	var lease struct {
		Spec struct{ HolderIdentity string }
	}
	const path = "/apis/coordination.k8s.io/v1/namespaces/tessera-system/leases/tessera-scheduler"
	if bed.Call(http.MethodGet, path, nil, &lease) != nil {
		return ""
	}
	return lease.Spec.HolderIdentity
}

// leader waits until a replica of tessera-scheduler leads, and returns its identity and the name of its pod.
func leader(t *testing.T) (identity, pod string) {
	t.Helper()
	bed.Eventually(t, bed.PodTimeout, "a replica leads", func() bool {
		identity = leaseHolder()
		return identity != ""
	})
	pod, _, _ = strings.Cut(identity, "_")
	return identity, pod
}

// killLeader deletes the leader's pod without a grace period, and returns the identity of that leader.
func killLeader(t *testing.T) string {
	t.Helper()
	leader, pod := leader(t)
	if err := bed.Call(http.MethodDelete, ours+"/pods/"+pod+"?gracePeriodSeconds=0", nil, nil); err != nil {
		t.Fatal(err)
	}
	return leader
}

// memoryInUse returns how much GPU memory the scheduler's ledger has given out, in GiB, from the page that
// gpushare's scheduler had, too. It is -1 while no replica leads. A whole GPU counts with all its memory.
func memoryInUse(t *testing.T) (used int) {
	t.Helper()
	var shown struct{ Nodes []struct{ UsedGPU int } }
	text := curl(t, "tessera-scheduler", `curl -sS -m 5 `+asKubeScheduler+`https://$ADDRESS:9410/gpushare-scheduler/inspect`)
	if json.Unmarshal([]byte(text), &shown) != nil {
		return -1
	}
	for _, node := range shown.Nodes {
		used += node.UsedGPU
	}
	return used
}

// waitLedgerEmpty waits until no GPU is held according to the scheduler and the cluster's objects.
func waitLedgerEmpty(t *testing.T) {
	t.Helper()
	bed.Eventually(t, bed.PodTimeout, "the scheduler's ledger is empty", func() bool { return memoryInUse(t) == 0 })
	var shown struct {
		Items []struct {
			UUID   string
			HeldBy []any
		}
	}
	text := bed.Tessera(t, "gpus", "-o", "json")
	if err := json.Unmarshal([]byte(text), &shown); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	for _, gpu := range shown.Items {
		if len(gpu.HeldBy) > 0 {
			t.Errorf("tessera gpus still shows holders of %s: %v", gpu.UUID, gpu.HeldBy)
		}
	}
}

// agentPage reads a page of the agent of a node.
func agentPage(t *testing.T, node string, port int, path string) string {
	t.Helper()
	var text string
	bed.Get(t, fmt.Sprintf("%s/%s:%d/proxy/%s", ours, strings.Replace(bed.AgentOf(node), "pod/", "pods/", 1), port, path), &text)
	return text
}
