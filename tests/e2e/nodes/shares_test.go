// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"testing"
	"time"

	"tessera.dev/tests/e2e/bed"
)

func TestAPodOfHigherPriorityTakesTheGPUOfALowerOne(t *testing.T) {
	bed.WireScheduler(t)
	const class = "above-others"
	err := bed.Call(http.MethodPost, "/apis/scheduling.k8s.io/v1/priorityclasses", bed.Object{
		"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": bed.Object{"name": class}, "value": 1000}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { bed.Kubectl(t, "delete", "priorityclass", class) })
	var low []string
	for i := range 4 {
		low = append(low, holder(fmt.Sprintf("low-%d", i), models[1]).Create(t))
	}
	had := map[string]string{} // the pod that had a GPU, by the GPU's UUID
	for _, pod := range low {
		bed.WaitPhase(t, pod, "Running")
		had[assigned(t, pod)["main"][0].GPU] = pod
	}
	high := holder("high", models[1])
	high.PriorityClass = class
	high.Create(t)
	bed.WaitPhase(t, "high", "Running")
	uuid := held(t, "high")
	if given := assigned(t, "high")["main"]; len(given) != 1 || given[0].GPU != uuid {
		t.Errorf("the pod was assigned %v and has %s", given, uuid)
	}
	for gpu, pod := range had {
		// The GPU is free when the containers of the evicted pod have ended. The pod's object is deleted later.
		var now struct {
			Metadata struct{ DeletionTimestamp string }
		}
		gone := bed.Call(http.MethodGet, "/api/v1/namespaces/default/pods/"+pod, nil, &now) != nil
		evicted := gone || now.Metadata.DeletionTimestamp != ""
		if evicted != (gpu == uuid) {
			t.Errorf("%s held %s, and the pod above it got %s; evicted: %t", pod, gpu, uuid, evicted)
		}
	}
	bed.Eventually(t, bed.PodTimeout, "the scheduler says that four GPUs are in use", func() bool {
		return memoryInUse(t) == 4*15
	})
}

func TestAPodUnderADisruptionBudgetKeepsItsGPU(t *testing.T) {
	bed.WireScheduler(t)
	const class = "above-budgets"
	const budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
	for path, object := range map[string]bed.Object{
		"/apis/scheduling.k8s.io/v1/priorityclasses": {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
			"metadata": bed.Object{"name": class}, "value": 1000},
		budgets: {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": bed.Object{"name": "guarded"},
			"spec": bed.Object{"minAvailable": 2, "selector": bed.Object{
				"matchLabels":      bed.Object{"guarded": "yes"},
				"matchExpressions": []bed.Object{{"key": "unguarded", "operator": "DoesNotExist"}}}}},
	} {
		if err := bed.Call(http.MethodPost, path, object, nil); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		bed.Kubectl(t, "delete", "priorityclass", class)
		bed.Kubectl(t, "delete", "poddisruptionbudget", "guarded")
	})
	for i := range 4 {
		low := holder(fmt.Sprintf("low-%d", i), models[1])
		if i < 2 { // these two come first by name, and were bound first
			low.Labels = map[string]string{"guarded": "yes"}
		}
		low.Create(t)
		bed.WaitPhase(t, low.Name, "Running")
	}
	bed.Eventually(t, bed.PodTimeout, "the budget counts its pods", func() bool {
		var budget struct {
			Status struct{ CurrentHealthy, ExpectedPods int }
		}
		bed.Get(t, budgets+"/guarded", &budget)
		return budget.Status.CurrentHealthy == 2 && budget.Status.ExpectedPods == 2
	})
	high := bed.Single("high", 2, "--hold", "600")
	high.NodeSelector, high.PriorityClass = map[string]string{product: models[1]}, class
	high.Create(t)
	bed.WaitPhase(t, "high", "Running")
	for _, name := range []string{"low-0", "low-1"} {
		if phase := bed.Phase(t, name); phase != "Running" {
			t.Errorf("%s, which a budget guards, is %s", name, phase)
		}
	}
}

func TestADeploymentScaledUpAndDownLeavesTheLedgerEmpty(t *testing.T) {
	rounds := 25
	if *bed.Long {
		rounds = 100
	}
	bed.WireScheduler(t)
	waitLedgerEmpty(t)
	const path = "/apis/apps/v1/namespaces/default/deployments"
	label := bed.Object{"app": "scaled"}
	pod := bed.Object{"terminationGracePeriodSeconds": 0, "containers": []bed.Object{{"name": "main",
		"image": "tessera.dev/tests/probe:dev", "imagePullPolicy": "Never", "args": []string{"--hold=600s"},
		"resources": bed.Object{"limits": bed.Object{gpuMem: 9}}}}}
	err := bed.Call(http.MethodPost, path, bed.Object{"apiVersion": "apps/v1", "kind": "Deployment",
		"metadata": bed.Object{"name": "scaled"}, "spec": bed.Object{"replicas": 0, "selector": bed.Object{"matchLabels": label},
			"template": bed.Object{"metadata": bed.Object{"labels": label}, "spec": pod}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { bed.Kubectl(t, "delete", "deployment", "scaled") })
	scale := func(replicas int) {
		t.Helper()
		err := bed.Call(http.MethodPatch, path+"/scaled/scale", bed.Object{"spec": bed.Object{"replicas": replicas}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		bed.Eventually(t, bed.PodTimeout, fmt.Sprintf("the Deployment has %d pods", replicas), func() bool {
			var now struct{ Status struct{ Replicas int } }
			bed.Get(t, path+"/scaled", &now)
			return now.Status.Replicas == replicas
		})
	}
	bound := 0
	for round := range rounds {
		scale(3)
		// Some rounds wait until pods are bound, others delete them before that.
		if round%10 == 0 {
			bed.Eventually(t, bed.PodTimeout, "a pod is bound", func() bool { return memoryInUse(t) > 0 })
			bound++
		}
		scale(0)
	}
	bed.Eventually(t, bed.PodTimeout, "all pods are gone", func() bool {
		var pods struct{ Items []bed.PodObject }
		bed.Get(t, "/api/v1/namespaces/default/pods?labelSelector=app%3Dscaled", &pods)
		return len(pods.Items) == 0
	})
	waitLedgerEmpty(t)
	// Other pods can use the GPUs again.
	holders := []string{}
	for i := range 4 {
		holders = append(holders, holder(fmt.Sprintf("afterwards-%d", i), models[1]).Create(t))
	}
	checkGPUs(t, holders, sizes(t))
	t.Logf("%d of %d rounds waited for a binding", bound, rounds)
}

// There are only 200 starts with -long, because a start costs half a second on two cores.
func TestPodsMadeAgainUnderTheSameNamesRunOnTheGPUsOfTheirOwnAssignment(t *testing.T) {
	bed.WireScheduler(t)
	const atOnce = 20
	starts := 40
	if *bed.Long {
		starts = 200
	}
	var names []string
	for i := range atOnce {
		names = append(names, fmt.Sprintf("same-%d", i))
	}
	began, wrong := time.Now(), 0
	for done := 0; done < starts; done += atOnce {
		rand.Shuffle(atOnce, func(i, j int) { names[i], names[j] = names[j], names[i] })
		// 20 x 9 GiB are more than the largest GPU has, so the pods are on several GPUs.
		for _, name := range names {
			sharing(name, map[string]int{gpuMem: 9}).Create(t)
		}
		for _, name := range names {
			bed.WaitPhase(t, name, "Running")
			want := assigned(t, name)["main"]
			if got := computesOn(t, name, "main", 1); len(want) != 1 || got[0] != want[0].GPU {
				t.Errorf("%s was assigned %v and has %v", name, want, got)
				wrong++
			}
		}
		checkGPUs(t, names, sizes(t))
		bed.DeletePods(t, names...)
	}
	t.Logf("%d starts in %s, %d on another GPU than assigned", starts, time.Since(began).Round(time.Second), wrong)
}

func TestInitContainersShareTheGPUOfTheirPod(t *testing.T) {
	bed.WireScheduler(t)
	pod := bed.Pod{Name: "with-init",
		Init:       []bed.Container{{Name: "prepare", Limits: map[string]int{gpuMem: 6}}},
		Containers: []bed.Container{holding("first", map[string]int{gpuMem: 3}), holding("second", map[string]int{gpuMem: 4})}}
	pod.Create(t)
	checkGPUs(t, []string{pod.Name}, sizes(t))
	prepared := computesOn(t, pod.Name, "prepare", 1)
	for _, container := range []string{"first", "second"} {
		if got := computesOn(t, pod.Name, container, 1); !slices.Equal(got, prepared) {
			t.Errorf("the init container had %v, %s has %v", prepared, container, got)
		}
	}
	// The containers that run have 7 GiB, and the init container had 6 GiB, so the pod holds 7 GiB and not 13. The
	// check waits, because the extender holds GPUs for some seconds after a request.
	bed.Eventually(t, bed.PodTimeout, "the scheduler says that 7 GiB are in use", func() bool {
		return memoryInUse(t) == 7
	})
}

func TestAContainerThatStartsAgainKeepsItsGPU(t *testing.T) {
	bed.WireScheduler(t)
	pod := bed.Pod{Name: "starts-again", RestartPolicy: "Always", Containers: []bed.Container{
		{Name: "short", Limits: map[string]int{gpuMem: 3}, Args: []string{"--hold", "1"}}, holding("long", map[string]int{gpuMem: 4})}}
	pod.Create(t)
	bed.WaitPhase(t, pod.Name, "Running")
	before := assigned(t, pod.Name)
	bed.Eventually(t, bed.PodTimeout, "the container has started again", func() bool {
		for _, status := range bed.ReadPod(t, pod.Name).Status.ContainerStatuses {
			if status.Name == "short" && status.RestartCount >= 2 && status.State["running"] != nil {
				return true
			}
		}
		return false
	})
	for container, want := range before {
		if got := computesOn(t, pod.Name, container, 1); got[0] != want[0].GPU {
			t.Errorf("%s was assigned %s and has %s", container, want[0].GPU, got[0])
		}
	}
	if before["short"][0].GPU != before["long"][0].GPU {
		t.Errorf("the containers of a pod with %s are on two GPUs: %v", gpuMem, before)
	}
}
