// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"tessera.dev/tests/e2e/bed"
)

func TestAPodComputesOnTheGPUsThatTheSchedulerChose(t *testing.T) {
	bed.WireScheduler(t)
	for _, count := range []int{1, 2} {
		name := fmt.Sprintf("chosen-%d", count)
		bed.Single(name, count, "--hold", "600").Create(t)
		checkGPUs(t, []string{name}, sizes(t))
	}
}

// n2 also has two free GPUs, but they have no NVLink. The pair must come from n1, although n1 is then no longer
// free as a whole.
func TestAPairHasAnNVLinkThoughItBreaksTheLargestNode(t *testing.T) {
	bed.WireScheduler(t)
	for i := range 3 {
		name := fmt.Sprintf("linked-%d", i)
		bed.Single(name, 2, "--hold", "600").Create(t)
		checkGPUs(t, []string{name}, sizes(t))
		pair := assigned(t, name)["main"]
		if link := linkBetween(t, pair[0].GPU, pair[1].GPU); !strings.HasPrefix(link, "NV") {
			t.Errorf("%s got two GPUs with %q between them", name, link)
		}
	}
}

// linkBetween returns the link of two GPUs in their node's annotation: "NVS12", "PHB".
func linkBetween(t *testing.T, a, b string) string {
	t.Helper()
	for i := range all {
		object, err := bed.Node(fmt.Sprintf("n%d", i+1))
		if err != nil {
			t.Fatal(err)
		}
		var devices struct {
			GPUs  []struct{ UUID string }
			Links [][]string
		}
		if err := json.Unmarshal([]byte(object.Metadata.Annotations["tessera.dev/devices"]), &devices); err != nil {
			t.Fatal(err)
		}
		of := func(uuid string) int {
			return slices.IndexFunc(devices.GPUs, func(gpu struct{ UUID string }) bool { return gpu.UUID == uuid })
		}
		if first, second := of(a), of(b); first >= 0 && second >= 0 {
			return devices.Links[max(first, second)][min(first, second)]
		}
	}
	return "different nodes"
}

func TestAllDialectsShareTheGPUsOfOneNodeWithoutOverselling(t *testing.T) {
	bed.WireScheduler(t)
	onT4 := map[string]string{product: models[1]}
	pods := map[string][]bed.Container{
		"whole":     {{Name: "main", GPUs: 1, Args: []string{"--hold", "600"}}},
		"memory":    {holding("main", map[string]int{gpuMem: 10})},
		"two":       {holding("first", map[string]int{gpuMem: 3}), holding("second", map[string]int{gpuMem: 4})},
		"cores":     {holding("main", map[string]int{vcudaCore: 60, vcudaMemory: 20})},
		"more":      {holding("main", map[string]int{vcudaCore: 60, vcudaMemory: 20})},
		"one-whole": {holding("main", map[string]int{vcudaCore: 100, vcudaMemory: 1})},
	}
	var names []string
	for name, containers := range pods {
		bed.Pod{Name: name, Containers: containers, NodeSelector: onT4}.Create(t)
		names = append(names, name)
	}
	checkGPUs(t, names, sizes(t))
	two := assigned(t, "two")
	if two["first"][0].GPU != two["second"][0].GPU {
		t.Errorf("the containers of a pod with %s are on two GPUs: %v", gpuMem, two)
	}
	// Two GPUs are held by pods with whole GPUs, and the others are shared, so a pod for two whole GPUs waits.
	bed.Pod{Name: "no-room", Containers: []bed.Container{{Name: "main", GPUs: 2}}, NodeSelector: onT4}.Create(t)
	bed.Eventually(t, bed.PodTimeout, "the pod without room says why it waits", func() bool {
		text := waitsFor(t, "no-room")
		return strings.Contains(text, "Insufficient") || strings.Contains(text, "GPU")
	})
}

func TestManyPodsOfOneSizeCreatedAtOnceEachGetTheirOwn(t *testing.T) {
	bed.WireScheduler(t)
	const count = 40
	var names []string
	for i := 0; i < count; i++ {
		name := fmt.Sprintf("many-%d", i)
		bed.Pod{Name: name, Containers: []bed.Container{holding("main", map[string]int{gpuMem: 9})}}.Create(t)
		names = append(names, name)
	}
	checkGPUs(t, names, sizes(t))
}

// While a volume is created for a pod, kube-scheduler keeps the pod in PreBind for up to ten minutes and does not
// call the extender. By kube-scheduler's own sums the third pod fits beside the two, so only the extender can
// refuse it.
func TestGPUsAreHeldWhileAPodWaitsForItsVolume(t *testing.T) {
	bed.WireScheduler(t)
	err := bed.Shared.Apply(ctx, `apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: never}
provisioner: tessera.test/never
volumeBindingMode: WaitForFirstConsumer
`)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { bed.Kubectl(t, "delete", "storageclass", "never") })
	for i := range 2 {
		name := fmt.Sprintf("slow-%d", i)
		if err := bed.Shared.Apply(ctx, `apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: `+name+`, namespace: default}
spec: {storageClassName: never, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}
`); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { bed.Kubectl(t, "delete", "pvc", name, "--wait=false") })
		pod := sharing(name, map[string]int{gpuMem: 100})
		pod.NodeSelector, pod.Claim = onH200, name
		pod.Create(t)
		bed.Eventually(t, bed.PodTimeout, name+" is in PreBind", func() bool {
			return bed.ReadPod(t, name).Status.NominatedNodeName == "n3"
		})
	}
	time.Sleep(8 * time.Second) // longer than GPUs are held for a pod without a nominated node
	next := sharing("next", map[string]int{gpuMem: 50})
	next.NodeSelector = onH200
	next.Create(t)
	bed.Eventually(t, bed.PodTimeout, "the next pod is refused by the extender", func() bool {
		return strings.Contains(waitsFor(t, "next"), "GiB")
	})
	if node := nodeOf(t, "next"); node != "" {
		t.Errorf("the next pod was bound to %s", node)
	}
	if text := bed.Tessera(t, "explain", "slow-0", "-n", "default"); !strings.Contains(text, "kube-scheduler is placing it on node n3") {
		t.Errorf("explain says %s", text)
	}
	bed.DeletePods(t, "slow-0")
	waitBound(t, "next")
}

// Batching of equal pods would reuse the first pod's result for the second one.
func TestKubeSchedulerDoesNotBatchPodsBesideAnExtender(t *testing.T) {
	bed.WireScheduler(t)
	path, err := bed.Shared.LogPath("kube-scheduler", 0)
	if err != nil {
		t.Fatal(err)
	}
	log, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(log), "Disabling signatures for profile because it has extenders configured") {
		t.Errorf("kube-scheduler does not say in %s that it has switched batching off", path)
	}
}
