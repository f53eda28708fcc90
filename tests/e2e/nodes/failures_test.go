// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"tessera.dev/tests/e2e/bed"
)

// printedOnNode returns the log of a pod's container. It reads the log on node i, without the API server.
func printedOnNode(pod string, i int) string {
	text, _ := bed.Shared.Exec(ctx, i, "/bin/sh", "-c", "cat /var/log/pods/default_"+pod+"_*/main/*.log")
	return text
}

// stopAgent kills all processes of the agent on node i.
func stopAgent(t *testing.T, i int) {
	t.Helper()
	pids := strings.Fields(bed.OnNode(t, i, "pgrep", "-f", "^/usr/bin/tessera-agent"))
	if len(pids) == 0 {
		t.Fatalf("no agent runs on node %d", i)
	}
	bed.OnNode(t, i, append([]string{"kill", "-9"}, pids...)...)
}

func TestTheStandbyKeepsToWhatAKilledLeaderBound(t *testing.T) {
	bed.WireScheduler(t)
	goOn := bed.Freeze(t, "kubelet", 3)
	before := holder("bound-before", models[2])
	before.Create(t)
	waitBound(t, before.Name)
	leader := killLeader(t)
	holder("bound-after", models[2]).Create(t)
	bed.Eventually(t, bed.PodTimeout, "another replica leads, or none", func() bool { return leaseHolder() != leader })
	goOn() // before the node counts as unreachable
	checkGPUs(t, []string{before.Name, "bound-after"}, sizes(t))
}

// A rolling update must complete, and pods must be scheduled meanwhile.
func TestARollingUpdateOfTheSchedulerCompletes(t *testing.T) {
	bed.WireScheduler(t)
	before := leaseHolder()
	bed.Kubectl(t, "-n", "tessera-system", "rollout", "restart", "deployment/tessera-scheduler")
	holder("meanwhile", models[2]).Create(t)
	bed.Kubectl(t, "-n", "tessera-system", "rollout", "status", "deployment/tessera-scheduler", "--timeout=180s")
	bed.Eventually(t, bed.PodTimeout, "a new replica leads", func() bool { now := leaseHolder(); return now != "" && now != before })
	holder("afterwards", models[2]).Create(t)
	checkGPUs(t, []string{"meanwhile", "afterwards"}, sizes(t))
}

// heldBack creates a pod on n3 whose devices are allocated. Its container with the share starts some seconds
// later, when the init container before it has ended. The function returns when the init container runs.
func heldBack(t *testing.T, name string, limits map[string]int) string {
	t.Helper()
	pod := sharing(name, limits)
	pod.NodeSelector, pod.NoToken = onH200, true
	pod.Init = []bed.Container{{Name: "before", Image: "probe", Args: []string{"--hold=6s"}}}
	// On a machine that stands still for a moment, the init container may have ended when the test looks. Then the pod
	// is made again.
	for range 3 {
		pod.Create(t)
		var running bool
		bed.Eventually(t, bed.PodTimeout, "the init container runs", func() bool {
			statuses := bed.ReadPod(t, name).Status.InitContainerStatuses
			running = len(statuses) > 0 && statuses[0].State["running"] != nil
			return running || (len(statuses) > 0 && statuses[0].State["terminated"] != nil)
		})
		if running {
			return name
		}
		bed.DeletePods(t, name)
	}
	t.Fatalf("the init container of %s ended three times before the test saw it run", name)
	return ""
}

func TestABoundShareStartsWhileTheAPIServerIsDown(t *testing.T) {
	bed.WireScheduler(t)
	pod := heldBack(t, "bound-alone", map[string]int{gpuMem: 20})
	want := assigned(t, pod)["main"][0].GPU
	// SIGKILL, because after SIGTERM the API server would wait for its watches to end.
	if err := bed.Shared.Stop(ctx, "kube-apiserver", 0, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { bed.StartAPIServer(t) })
	bed.Eventually(t, bed.PodTimeout, "the pod computes without an API server", func() bool {
		return strings.Contains(printedOnNode(pod, 3), "holding for")
	})
	if got := bed.UUIDsIn(printedOnNode(pod, 3)); len(got) != 1 || got[0] != want {
		t.Errorf("the pod was assigned %s and has %v", want, got)
	}
}

func TestAnAgentKilledBetweenAllocateAndStartStillGivesTheAssignedGPU(t *testing.T) {
	bed.WireScheduler(t)
	names := []string{
		heldBack(t, "allocated-memory", map[string]int{gpuMem: 30}),
		heldBack(t, "allocated-cores", map[string]int{vcudaCore: 30, vcudaMemory: 40}),
	}
	stopAgent(t, 3)
	checkGPUs(t, names, sizes(t))
}

func TestANodeThatIsDeletedAndReturnsHasItsSharesAgain(t *testing.T) {
	bed.WireScheduler(t)
	const node, index = "n3", 3
	// The pods select the node by a label that the kubelet itself writes. The kubelet admits its pods again before
	// the agent has written the labels of the GPUs.
	onNode := map[string]string{"kubernetes.io/hostname": node}
	for _, agentToo := range []bool{false, true} {
		t.Run(map[bool]string{false: "the-agent-stayed", true: "the-agent-too"}[agentToo], func(t *testing.T) {
			var names []string
			for i, limits := range []map[string]int{{gpuMem: 100}, {gpuMem: 90}, {vcudaCore: 50, vcudaMemory: 80}} {
				pod := sharing(fmt.Sprintf("remains-%d", i), limits)
				pod.NodeSelector = onNode
				names = append(names, pod.Create(t))
			}
			checkGPUs(t, names, sizes(t))
			const used = 100 + 90 + 20 // GiB
			bed.Eventually(t, bed.PodTimeout, "the scheduler counts nothing else", func() bool { return memoryInUse(t) == used })
			if err := bed.Shared.Stop(ctx, "kubelet", index, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { bed.Shared.Start(ctx, "kubelet", index) })
			if agentToo {
				stopAgent(t, index)
			}
			if err := bed.Call(http.MethodDelete, "/api/v1/nodes/"+node, nil, nil); err != nil {
				t.Fatal(err)
			}
			bed.Eventually(t, bed.PodTimeout, "the scheduler has no such node", func() bool { return memoryInUse(t) == 0 })
			if err := bed.Shared.Start(ctx, "kubelet", index); err != nil {
				t.Fatal(err)
			}
			bed.Eventually(t, bed.PodTimeout, "the node publishes its GPUs", func() bool {
				object, err := bed.Node(node)
				return err == nil && object.Metadata.Annotations["tessera.dev/devices"] != "" &&
					object.Metadata.Labels[product] == models[index-1]
			})
			t.Cleanup(func() {
				if t.Failed() {
					t.Log(bed.Tessera(t, "gpus"), bed.Tessera(t, "pods"))
				}
			})
			bed.Eventually(t, bed.PodTimeout, "the scheduler counts what runs there", func() bool { return memoryInUse(t) == used })
			// 70 GiB are free in total, and at most 50 GiB on one GPU.
			late, never := sharing("afterwards", map[string]int{gpuMem: 25}), sharing("no-room", map[string]int{gpuMem: 60})
			late.NodeSelector, never.NodeSelector = onNode, onNode
			late.Create(t)
			never.Create(t)
			checkGPUs(t, append(names, late.Name), sizes(t))
			bed.Untouched(t, "after the node returned", names...)
			bed.Eventually(t, bed.PodTimeout, "the pod that does not fit waits", func() bool {
				return bed.ConditionOf(bed.ReadPod(t, never.Name).Status.Conditions, "PodScheduled").Reason == "Unschedulable"
			})
		})
	}
}

// Without tessera-scheduler, kube-scheduler only counts resources and the agents choose the GPUs. The kubelet
// refuses a pod if other pods took the GPUs first, so pods may fail, but no GPU memory is given out twice.
func TestPlainKubeSchedulerDoesNotOversellBetweenDialects(t *testing.T) {
	bed.UnwireScheduler(t)
	var names []string
	for round := range 2 {
		for i, limits := range []map[string]int{{bed.WholeGPU: 1}, {gpuMem: 10}, {vcudaCore: 60, vcudaMemory: 20}, {gpuMem: 9}, {vcudaCore: 100, vcudaMemory: 1}} {
			pod := sharing(fmt.Sprintf("plain-%d-%d", round, i), limits)
			pod.NodeSelector = onT4
			names = append(names, pod.Create(t))
		}
	}
	states := func() (text string, running []string) {
		for _, name := range names {
			status := bed.ReadPod(t, name).Status
			text += name + " " + status.Phase + "\n"
			if status.Phase == "Running" {
				running = append(running, name)
			}
		}
		return text, running
	}
	var running []string
	last, since := "", time.Now()
	t.Cleanup(func() { t.Logf("\n%s", last) })
	bed.Eventually(t, 2*bed.PodTimeout, "at least four pods run on four GPUs, and the phases stay as they are", func() bool {
		var now string
		if now, running = states(); now != last {
			last, since = now, time.Now()
		}
		return time.Since(since) > 4*time.Second && len(running) >= 4
	})
	for _, name := range running {
		bed.Eventually(t, bed.PodTimeout, "the agent publishes what it assigned", func() bool {
			return json.Valid([]byte(bed.ReadPod(t, name).Metadata.Annotations["tessera.dev/assignment"]))
		})
	}
	checkGPUs(t, running, sizes(t))
}
