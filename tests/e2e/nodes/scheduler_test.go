// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

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

// n2 has as many GPUs free, but without NVLink, and taking two of n1 breaks the only whole node with eight.
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

// linkBetween is what the annotation of the GPUs' node says of them: "NVS12", "PHB".
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
	// Two GPUs are whole, the others are shared; nobody else gets one of them.
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
