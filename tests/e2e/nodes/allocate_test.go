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

// foreign is a RuntimeClass whose containers start without tessera-runtime, as with an unconfigured engine.
const foreign = "foreign"

// bindAtAllocate makes the agents assign GPUs in Allocate, with device nodes, until the test ends.
func bindAtAllocate(t *testing.T) {
	t.Helper()
	agents := func(env ...string) {
		bed.Kubectl(t, append([]string{"-n", "tessera-system", "set", "env", "daemonset/tessera-agent", "-c", "agent"}, env...)...)
		bed.Kubectl(t, "-n", "tessera-system", "rollout", "status", "daemonset/tessera-agent", "--timeout=180s")
		for i, gpus := range all {
			name := fmt.Sprintf("n%d", i+1)
			bed.Eventually(t, bed.PodTimeout, name+" offers its GPUs", func() bool {
				return bed.Allocatable(name, bed.WholeGPU) == gpus.Count && bed.Allocatable(name, gpuMem) > 0
			})
		}
	}
	err := bed.Call(http.MethodPost, "/apis/node.k8s.io/v1/runtimeclasses", bed.Object{
		"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": bed.Object{"name": foreign}, "handler": "runc"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		bed.Kubectl(t, "delete", "runtimeclass", foreign)
		agents("BINDING-", "PASS_DEVICE_SPECS-")
	})
	agents("BINDING=allocate", "PASS_DEVICE_SPECS=true")
}

// report returns the output of the probe in a container.
func report(t *testing.T, pod, container string) (seen struct {
	Devices     []string
	Environment map[string]string
	OpenErrors  map[string]string
}) {
	t.Helper()
	bed.Eventually(t, bed.PodTimeout, pod+" reports what it sees", func() bool {
		return json.Unmarshal([]byte(bed.Logs(t, pod, container)), &seen) == nil
	})
	return seen
}

func TestWithBindingAllocateContainersOfAForeignRuntimeHaveTheGPUsOfTheirAssignment(t *testing.T) {
	bed.WireScheduler(t)
	bindAtAllocate(t)
	probing := func(name string, limits map[string]int) bed.Container {
		return bed.Container{Name: name, Image: "probe", Limits: limits, Args: []string{"--hold=600s"}}
	}
	pods := []bed.Pod{
		{Name: "by-cores", Containers: []bed.Container{probing("main", map[string]int{vcudaCore: 30, vcudaMemory: 20})}},
		{Name: "two", Containers: []bed.Container{probing("first", map[string]int{gpuMem: 3}), probing("second", map[string]int{gpuMem: 3})}},
		{Name: "with-init", Init: []bed.Container{{Name: "before", Image: "probe", Limits: map[string]int{gpuMem: 2}}},
			Containers: []bed.Container{probing("main", map[string]int{gpuMem: 3})}},
		{Name: "whole", Containers: []bed.Container{probing("main", map[string]int{bed.WholeGPU: 1})}},
	}
	for i := range pods {
		pods[i].NodeSelector = onT4
	}
	// Each pod needs 45 of a GPU's 80 GiB, so each pod has its own GPU.
	for i := range 6 {
		pods = append(pods, bed.Pod{Name: fmt.Sprintf("equal-%d", i), NodeSelector: map[string]string{product: models[0]},
			Containers: []bed.Container{probing("main", map[string]int{gpuMem: 45})}})
	}
	for _, pod := range pods {
		pod.RuntimeClass = foreign
		pod.Create(t)
	}
	gpusOf := map[string][]string{"n1": bed.UUIDs(t, 1), "n2": bed.UUIDs(t, 2)}
	for _, pod := range pods {
		bed.WaitPhase(t, pod.Name, "Running")
		gpus := gpusOf[nodeOf(t, pod.Name)]
		want := assigned(t, pod.Name)
		for _, container := range slices.Concat(pod.Init, pod.Containers) {
			seen := report(t, pod.Name, container.Name)
			if len(want[container.Name]) != 1 || seen.Environment["NVIDIA_VISIBLE_DEVICES"] != want[container.Name][0].GPU {
				t.Errorf("%s/%s was assigned %v and sees %v", pod.Name, container.Name, want[container.Name], seen.Environment)
				continue
			}
			minor := slices.Index(gpus, want[container.Name][0].GPU)
			// The simulated driver has no kernel module, so every open fails. Only the device cgroup fails it as "not permitted".
			node := fmt.Sprintf("/dev/nvidia%d", minor)
			if !slices.Contains(seen.Devices, node) || strings.Contains(seen.OpenErrors[node], "not permitted") {
				t.Errorf("%s/%s sees the devices %v, not %s: %v", pod.Name, container.Name, seen.Devices, node, seen.OpenErrors)
			}
			for other := range gpus {
				if other != minor && slices.Contains(seen.Devices, fmt.Sprintf("/dev/nvidia%d", other)) {
					t.Errorf("%s/%s sees /dev/nvidia%d, which it was not assigned", pod.Name, container.Name, other)
				}
			}
			if got := seen.Environment["ALIYUN_COM_GPU_MEM_IDX"]; container.Limits[gpuMem] > 0 && got != fmt.Sprint(minor) {
				t.Errorf("%s/%s: ALIYUN_COM_GPU_MEM_IDX=%q, not %d", pod.Name, container.Name, got, minor)
			}
		}
	}
	// The metrics are the same as with late binding.
	if metric := agentPage(t, "n2", 5678, "metric"); !strings.Contains(metric, `pod_name="by-cores",req_of_gpu="total"} 0.3`) {
		t.Errorf("/metric lacks by-cores: %s", metric)
	}
	if metrics := agentPage(t, "n2", 9400, "metrics"); !strings.Contains(metrics, "tessera_starts_refused_total 0\n") {
		t.Errorf("containers were refused: %s", metrics)
	}
}

func TestWithBindingAllocateAContainerOfWhichNothingIsKnownDoesNotStartAgain(t *testing.T) {
	bed.WireScheduler(t)
	bindAtAllocate(t)
	again := bed.Pod{Name: "again", RestartPolicy: "Always", RuntimeClass: foreign, NodeSelector: onT4, Containers: []bed.Container{
		{Name: "main", Image: "probe", Limits: map[string]int{gpuMem: 3}, Args: []string{"--hold=1s"}}}}
	again.Create(t)
	status := func() (now bed.ContainerStatus) {
		if all := bed.ReadPod(t, again.Name).Status.ContainerStatuses; len(all) > 0 {
			now = all[0]
		}
		return now
	}
	bed.Eventually(t, bed.PodTimeout, "the container has started again", func() bool { return status().RestartCount >= 2 })
	// A killed agent changes nothing. After that, the agent also loses its state.
	restarts := status().RestartCount
	stopAgent(t, 2)
	bed.Eventually(t, bed.PodTimeout, "the container continues to start", func() bool { return status().RestartCount >= restarts+2 })
	bed.OnNode(t, 2, "rm", "/var/lib/tessera/grants.journal")
	stopAgent(t, 2)
	bed.Eventually(t, bed.PodTimeout, "a start is refused, and the pod gives the reason", func() bool {
		waiting := status().State["waiting"]
		return waiting != nil && strings.Contains(fmt.Sprint(waiting), "delete pod default/again")
	})
	if metrics := agentPage(t, "n2", 9400, "metrics"); strings.Contains(metrics, "tessera_starts_refused_total 0\n") {
		t.Error("the refusal is not counted")
	}
	bed.DeletePods(t, again.Name)
	again.Create(t)
	bed.Eventually(t, bed.PodTimeout, "the container of the new pod starts", func() bool { return status().RestartCount >= 1 })
}
