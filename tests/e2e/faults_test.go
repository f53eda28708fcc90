// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"tessera.dev/tests/e2e/bed"
)

func TestACriticalXIDWithdrawsOneGPU(t *testing.T) {
	t.Cleanup(func() { simgpu(t, "recover", "--gpu", "3"); waitAllocatable(t, gpus) })
	simgpu(t, "inject", "xid", "--gpu", "3", "--code", "79")
	waitAllocatable(t, gpus-1)
	bed.Single("elsewhere", gpus-1).Create(t)
	bed.WaitPhase(t, "elsewhere", "Succeeded")
	bed.RequirePassed(t, "elsewhere", gpus-1)
}

func agentPID(t *testing.T) string {
	t.Helper()
	text, err := bed.Shared.Exec(ctx, 1, "pgrep", "-x", "tessera-agent")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(text)
}

// promptly is a time in which a component that runs again offers the GPUs, also on a loaded machine. Most of it is a
// second between two reports of the kubelet.
const promptly = 5 * time.Second

// disturb repeats a disturbance while a pod with a GPU runs. The disturbance returns the time at which the
// stopped process (the agent, the kubelet) ran again. Promptly, all GPUs must be offered. A machine may stand still for
// some seconds, so a slow round is repeated, and some of them are allowed.
func disturb(t *testing.T, name string, disturbance func(t *testing.T) time.Time) {
	rounds, slow, allowed := 3, 0, 2
	if *bed.Long {
		rounds, allowed = 100, 5
	}
	pod := bed.Single("through-"+name, 1, "--hold", "7200").Create(t)
	bed.WaitPhase(t, pod, "Running")
	watch := watchAllocatable(t)
	var worst, longestGap time.Duration
	for round := 0; round < rounds+slow && slow <= allowed; round++ {
		began := time.Now()
		recovered := disturbance(t)
		waitAllocatable(t, gpus)
		longestGap = max(longestGap, watch.longestBelow(gpus, began))
		offeredAgain := watch.lastReached(gpus, began)
		if offeredAgain.IsZero() {
			continue // the API never showed fewer
		}
		delay := offeredAgain.Sub(recovered)
		worst = max(worst, delay)
		if delay > promptly {
			slow++
			t.Logf("round %d: all %d GPUs were offered only %s after the recovery", round, gpus, delay)
		}
	}
	if slow > allowed {
		t.Errorf("in %d rounds all %d GPUs were not offered within %s after the recovery", slow, gpus, promptly)
	}
	t.Logf("%s, %d rounds: all GPUs were offered at most %s after the recovery; longest gap in the API %s", name, rounds, worst, longestGap)
	bed.Untouched(t, "after "+name, pod)
	after := bed.Single("after-"+name, gpus-1).Create(t)
	bed.WaitPhase(t, after, "Succeeded")
	bed.RequirePassed(t, after, gpus-1)
}

// registrations returns how often the agent has registered nvidia.com/gpu since the kubelet started, as the
// kubelet counts. It is 0 if the kubelet does not answer.
func registrations() int {
	text, _ := bed.Shared.Kubectl(ctx, "get", "--raw", "/api/v1/nodes/"+node+"/proxy/metrics")
	_, rest, _ := strings.Cut(text, `kubelet_device_plugin_registration_total{resource_name="nvidia.com/gpu"} `)
	count, _, _ := strings.Cut(rest, "\n")
	number, _ := strconv.Atoi(count)
	return number
}

// killAgent kills the agent, and returns the time at which the next agent ran. When the function returns, the
// kubelet offers the GPUs of the next agent. Until then the kubelet rejects pods, though the API may show all GPUs.
func killAgent(t *testing.T) (recovered time.Time) {
	t.Helper()
	old, before := agentPID(t), 0
	bed.Eventually(t, bed.PodTimeout, "the kubelet says how often the agent has registered", func() bool {
		before = registrations()
		return before > 0
	})
	onNode(t, "kill", "-9", old)
	// After many kills the agent's parent pauses for up to five seconds.
	bed.Eventually(t, bed.PodTimeout, "the agent runs again", func() bool {
		now := agentPID(t)
		recovered = time.Now()
		return now != "" && now != old
	})
	bed.Eventually(t, bed.PodTimeout, "the agent has registered again", func() bool { return registrations() > before })
	return recovered
}

func TestAgentKilledWhilePodsRun(t *testing.T) { disturb(t, "agent-kill", killAgent) }

func TestAKilledAgentIsStartedAgainInItsContainer(t *testing.T) {
	containers := func() string {
		return bed.Kubectl(t, "-n", "tessera-system", "get", "pods", "-l", "app.kubernetes.io/name=tessera-agent",
			"-o", "jsonpath={.items[*].status.containerStatuses[*].containerID}")
	}
	before, began := containers(), time.Now()
	recovered := killAgent(t)
	t.Logf("another agent runs after %s", recovered.Sub(began))
	waitAllocatable(t, gpus)
	if after := containers(); after != before {
		t.Errorf("the kubelet restarted the container: %s, before %s", after, before)
	}
}

// kubeletSocket identifies the kubelet's registration socket and its creation time: each kubelet creates a new one.
func kubeletSocket() string {
	text, err := bed.Shared.Exec(ctx, 1, "stat", "-c", "%i %z", "/var/lib/kubelet/device-plugins/kubelet.sock")
	if err != nil {
		return ""
	}
	return text
}

func TestKubeletRestartedWhilePodsRun(t *testing.T) {
	// The kubelet may run again before the API server shows fewer GPUs, so the test reads the kubelet's metrics.
	var delays []time.Duration
	disturb(t, "kubelet-restart", func(t *testing.T) time.Time {
		old := kubeletSocket()
		if err := bed.Shared.Restart(ctx, "kubelet", 1); err != nil {
			t.Fatal(err)
		}
		bed.Eventually(t, bed.PodTimeout, "the kubelet listens", func() bool {
			now := kubeletSocket()
			return now != "" && now != old
		})
		recovered := time.Now()
		bed.Eventually(t, bed.PodTimeout, "the agent has registered with the new kubelet",
			func() bool { return registrations() > 0 })
		delays = append(delays, time.Since(recovered))
		bed.Kubectl(t, "wait", "node/"+node, "--for=condition=Ready", "--timeout=180s")
		return recovered
	})
	slices.Sort(delays)
	t.Logf("the kubelet counted the registration after it listened: %v", delays)
	// The kubelet needs a part of this time to serve its metrics.
	if median := delays[len(delays)/2]; median > 2*promptly {
		t.Errorf("the agent registered only %s after the kubelet listened, in half of the rounds", median)
	}
}

func TestPluginSocketDeletedWhilePodsRun(t *testing.T) {
	disturb(t, "socket-delete", func(t *testing.T) time.Time {
		onNode(t, "/bin/sh", "-c", "rm /var/lib/kubelet/device-plugins/tessera-*.sock")
		recovered := time.Now()
		bed.Eventually(t, bed.PodTimeout, "a new socket", func() bool {
			_, err := bed.Shared.Exec(ctx, 1, "/bin/sh", "-c", "ls /var/lib/kubelet/device-plugins/tessera-*.sock")
			return err == nil
		})
		return recovered
	})
}

func TestContainerdRestartedWhilePodsRun(t *testing.T) {
	pod := bed.Single("through-containerd", 1, "--hold", "600").Create(t)
	bed.WaitPhase(t, pod, "Running")
	if err := bed.Shared.Restart(ctx, "containerd", 1); err != nil {
		t.Fatal(err)
	}
	after := bed.Single("after-containerd", 1).Create(t)
	bed.WaitPhase(t, after, "Succeeded")
	if got := bed.Phase(t, pod); got != "Running" {
		t.Errorf("the pod is %s", got)
	}
}

func TestAPIServerDownDoesNotStopAGrant(t *testing.T) {
	// The pod is bound while the API server runs. Its container starts again and again without the API server.
	pod := bed.Pod{Name: "restarting", RestartPolicy: "Always",
		Containers: []bed.Container{{Name: "main", Image: "probe", GPUs: 1, Args: []string{"--fail", "--hold=1s"}}}}
	pod.Create(t)
	// The node keeps the output of the container's start N in N.log. The output names the GPUs that the container saw.
	starts := func() int {
		text, _ := bed.Shared.Exec(ctx, 1, "/bin/sh", "-c",
			"grep -l /dev/nvidia[0-9] /var/log/pods/default_restarting_*/main/*.log /dev/null | sort -V | tail -n 1")
		count, err := strconv.Atoi(strings.TrimSuffix(filepath.Base(strings.TrimSpace(text)), ".log"))
		if err != nil {
			return -1
		}
		return count
	}
	bed.Eventually(t, bed.PodTimeout, "the first start", func() bool { return starts() >= 0 })
	// SIGKILL, because after SIGTERM the API server would wait for its watches to end.
	if err := bed.Shared.Stop(ctx, "kube-apiserver", 0, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { bed.StartAPIServer(t) }) // also after a failure
	known := starts()
	bed.Eventually(t, bed.PodTimeout, "two starts without the API server", func() bool { return starts() >= known+2 })
	bed.StartAPIServer(t)
	// The agent knows this pod only after it has listed the pods again, and rejects the pod until then.
	after := bed.Single("after-api-server", 1)
	after.RestartPolicy = "OnFailure"
	after.Create(t)
	bed.WaitPhase(t, after.Name, "Succeeded")
}

func TestADamagedRuntimeConfigurationStopsOnlyPodsWithGPUs(t *testing.T) {
	const file = "/etc/tessera/runtime.toml"
	restore := func() { onNode(t, "/bin/sh", "-c", "if [ -e "+file+".kept ]; then mv "+file+".kept "+file+"; fi") }
	t.Cleanup(restore)
	onNode(t, "/bin/sh", "-c", "mv "+file+" "+file+".kept && echo 'this is = = not toml' >"+file)

	plain := bed.Pod{Name: "plain", Containers: []bed.Container{{Name: "main", Image: "probe"}}}.Create(t)
	bed.WaitPhase(t, plain, "Succeeded")
	refused := bed.Single("refused", 1).Create(t)
	bed.Eventually(t, bed.PodTimeout, "a pod event that names the file and the line", func() bool {
		text := bed.Kubectl(t, "get", "events", "--field-selector", "involvedObject.kind=Pod,involvedObject.name="+refused,
			"-o", "jsonpath={.items[*].message}")
		return strings.Contains(text, file+":1")
	})
	if got := bed.Phase(t, refused); got == "Running" || got == "Succeeded" {
		t.Errorf("the pod with a GPU is %s", got)
	}
	restore()
	mended := bed.Single("mended", 1).Create(t)
	bed.WaitPhase(t, mended, "Succeeded")
	bed.RequirePassed(t, mended, 1)
}

// freezePod freezes all processes of a pod. They neither run nor end, like processes that hang in the driver. They
// go on when the returned function is called or the test ends.
func freezePod(t *testing.T, uid string) (thaw func()) {
	t.Helper()
	// Both cgroup drivers: pod<uid>, or <uid> with underscores in the name of a slice.
	find := "find /sys/fs/cgroup/freezer -type d \\( -name 'pod" + uid + "' -o -name '*pod" + strings.ReplaceAll(uid, "-", "_") + ".slice' \\)"
	folders := strings.Fields(onNode(t, "/bin/sh", "-c", find+" 2>/dev/null || true"))
	if len(folders) != 1 {
		t.Skipf("the pod has the freezer cgroups %q of version 1, not one: version 2 can kill a frozen process", folders)
	}
	set := func(state string) error {
		_, err := bed.Shared.Exec(ctx, 1, "/bin/sh", "-c", "echo "+state+" >"+folders[0]+"/freezer.state")
		return err
	}
	if err := set("FROZEN"); err != nil {
		t.Fatal(err)
	}
	thaw = sync.OnceFunc(func() {
		if err := set("THAWED"); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(thaw)
	return thaw
}

func TestTheGPUsOfAForceDeletedPodWaitForProcessesThatDoNotEnd(t *testing.T) {
	t.Cleanup(func() { waitAllocatable(t, gpus) })
	bed.Single("frozen", gpus, "--hold", "600").Create(t)
	bed.WaitPhase(t, "frozen", "Running")
	thaw := freezePod(t, bed.ReadPod(t, "frozen").Metadata.UID)
	if err := bed.Call(http.MethodDelete, "/api/v1/namespaces/default/pods/frozen?gracePeriodSeconds=0", nil, nil); err != nil {
		t.Fatal(err)
	}
	next := bed.Single("after-frozen", gpus)
	next.RestartPolicy = "OnFailure" // rejected while the old one runs
	next.Create(t)
	// The kubelet has removed the pod and gives its device ids to the next pod. The agent still tracks the removed pod.
	waitAllocatable(t, 0)
	waitCondition(t, "False GPUUnhealthy: ", "pod default/frozen is gone, but")
	// The kubelet reports a pod as Running if its only container was rejected and will start again.
	if status := bed.ReadPod(t, next.Name).Status; status.Phase == "Succeeded" ||
		slices.ContainsFunc(status.ContainerStatuses, func(c bed.ContainerStatus) bool { return c.State["running"] != nil }) {
		t.Errorf("the next pod runs before the processes of the first pod have ended: %+v", status)
	}
	thaw()
	waitAllocatable(t, gpus)
	waitCondition(t, "True GPUsHealthy")
	bed.WaitPhase(t, next.Name, "Succeeded")
	bed.RequirePassed(t, next.Name, gpus)
}

func TestAGPUInMIGModeIsWithdrawn(t *testing.T) {
	t.Cleanup(func() {
		simgpu(t, "inject", "mig", "--gpu", "2", "--mode", "off")
		waitAllocatable(t, gpus)
	})
	simgpu(t, "inject", "mig", "--gpu", "2", "--mode", "on")
	waitAllocatable(t, gpus-1)
	waitCondition(t, "False GPUUnhealthy: ", "MIG mode is on")
}

func TestAnXIDOfAnApplicationLeavesTheGPUOnOffer(t *testing.T) {
	simgpu(t, "inject", "xid", "--gpu", "4", "--code", "31")
	bed.Eventually(t, bed.PodTimeout, "the annotation names the XID", func() bool {
		object, err := bed.Node(node)
		return err == nil && strings.Contains(object.Metadata.Annotations["tessera.dev/devices"], `"suspect":"XID 31`)
	})
	if got := allocatable(); got != gpus {
		t.Errorf("%d GPUs are offered, not %d", got, gpus)
	}
}

// agentHasDriver reports whether the agent has a session with the driver. The simulated library keeps a file open
// during a session, as NVIDIA's library keeps /dev/nvidiactl open. The library itself stays mapped afterwards.
func agentHasDriver(t *testing.T) bool {
	t.Helper()
	// ls ends with status 1 if a file was closed after ls had read the folder.
	files := onNode(t, "/bin/sh", "-c", "ls -l /proc/"+agentPID(t)+"/fd || [ $? -eq 1 ]")
	return strings.Contains(files, "/run/simgpu/state")
}

func TestTheDriverIsClosedOnRequestAndOpenedAgain(t *testing.T) {
	const file = "/run/tessera/release-driver"
	t.Cleanup(func() { onNode(t, "rm", "-f", file); waitAllocatable(t, gpus) })
	if !agentHasDriver(t) {
		t.Fatal("the agent does not use the driver")
	}
	onNode(t, "touch", file)
	bed.Eventually(t, bed.PodTimeout, "the agent has the driver closed", func() bool { return !agentHasDriver(t) })
	waitAllocatable(t, 0)
	waitCondition(t, "False DriverNotReady: ", file) // says what to do
	onNode(t, "rm", file)
	waitAllocatable(t, gpus)
	waitCondition(t, "True GPUsHealthy")
}

func TestAnEngineConfigurationThatIsTakenAwayIsReported(t *testing.T) {
	const file, kept = "/etc/containerd/conf.d/99-tessera.toml", "/etc/containerd/99-tessera.kept"
	restore := func() { onNode(t, "/bin/sh", "-c", "if [ -e "+kept+" ]; then mv "+kept+" "+file+"; fi") }
	t.Cleanup(restore)
	reported := len(nodeEvents(t, "RuntimeNotConfigured"))
	onNode(t, "mv", file, kept)
	waitCondition(t, "False RuntimeNotConfigured: ", file)
	waitEvent(t, "RuntimeNotConfigured", reported)
	restore()
	waitCondition(t, "True GPUsHealthy")
}
