// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestAGPULostWhileAPodRunsIsUnhealthyAndComesBack(t *testing.T) {
	t.Cleanup(func() { simgpu(t, "recover", "--gpu", "0"); waitAllocatable(t, gpus, time.Minute) })
	single("survivor", 1, "--hold", "300").create(t)
	waitPhase(t, "survivor", "Running")

	simgpu(t, "inject", "lost", "--gpu", "0")
	waitAllocatable(t, gpus-1, 30*time.Second)
	if got := phase(t, "survivor"); got != "Running" {
		t.Errorf("the pod is %s", got)
	}
	simgpu(t, "recover", "--gpu", "0")
	waitAllocatable(t, gpus, time.Minute)
}

func TestACriticalXIDWithdrawsOneGPU(t *testing.T) {
	t.Cleanup(func() { simgpu(t, "recover", "--gpu", "3"); waitAllocatable(t, gpus, 2*time.Minute) })
	simgpu(t, "inject", "xid", "--gpu", "3", "--code", "79")
	waitAllocatable(t, gpus-1, 30*time.Second)
	single("elsewhere", gpus-1).create(t)
	waitPhase(t, "elsewhere", "Succeeded")
	passed(t, "elsewhere", gpus-1)
}

func agentPID(t *testing.T) string {
	t.Helper()
	text, err := shared.Exec(ctx, 1, "pgrep", "-x", "tessera-agent")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(text)
}

// disturb repeats a disturbance while a pod with a GPU runs through all of it. The disturbance returns the
// moment from which everything needed is there again (the agent's process, the kubelet's); not more than
// two seconds later all GPUs must be offered.
func disturb(t *testing.T, name string, disturbance func(t *testing.T) time.Time) {
	rounds := 3
	if *long {
		rounds = 100
	}
	pod := single("through-"+name, 1, "--hold", "7200").create(t)
	waitPhase(t, pod, "Running")
	watch := watchAllocatable(t)
	var worst, longestGap time.Duration
	for round := range rounds {
		began := time.Now()
		there := disturbance(t)
		waitAllocatable(t, gpus, 30*time.Second)
		longestGap = max(longestGap, watch.longestBelow(gpus, began))
		back := watch.lastReached(gpus, began)
		if back.IsZero() {
			continue // the API never showed fewer
		}
		late := back.Sub(there)
		worst = max(worst, late)
		if late > 2*time.Second {
			t.Errorf("round %d: all %d GPUs were offered only %s after everything was there again", round, gpus, late)
		}
	}
	t.Logf("%s, %d rounds: all GPUs offered at the latest %s after; longest gap in the API %s", name, rounds, worst, longestGap)
	state := kubectl(t, "get", "pod", pod, "-o", "jsonpath={.status.phase} {.status.containerStatuses[0].restartCount}")
	if state != "Running 0" {
		t.Errorf("the running pod was touched: %s", state)
	}
	after := single("after-"+name, gpus-1).create(t)
	waitPhase(t, after, "Succeeded")
	passed(t, after, gpus-1)
}

func TestAgentKilledWhilePodsRun(t *testing.T) {
	disturb(t, "agent-kill", func(t *testing.T) (there time.Time) {
		old := agentPID(t)
		onNode(t, "kill", "-9", old)
		// The kubelet's back-off between restarts of a container grows; it is not ours to shorten.
		eventually(t, 6*time.Minute, "the agent runs again", func() bool {
			now := agentPID(t)
			there = time.Now()
			return now != "" && now != old
		})
		return there
	})
}

func TestKubeletRestartedWhilePodsRun(t *testing.T) {
	disturb(t, "kubelet-restart", func(t *testing.T) time.Time {
		if err := shared.Restart(ctx, "kubelet", 1); err != nil {
			t.Fatal(err)
		}
		there := time.Now()
		eventually(t, 30*time.Second, "the kubelet listens", func() bool {
			_, err := shared.Exec(ctx, 1, "/bin/sh", "-c", "test -S /var/lib/kubelet/device-plugins/kubelet.sock")
			there = time.Now()
			return err == nil
		})
		kubectl(t, "wait", "node/"+node, "--for=condition=Ready", "--timeout=60s")
		return there
	})
}

func TestPluginSocketDeletedWhilePodsRun(t *testing.T) {
	disturb(t, "socket-delete", func(t *testing.T) time.Time {
		onNode(t, "/bin/sh", "-c", "rm /var/lib/kubelet/device-plugins/tessera-*.sock")
		there := time.Now()
		eventually(t, 10*time.Second, "a new socket", func() bool {
			_, err := shared.Exec(ctx, 1, "/bin/sh", "-c", "ls /var/lib/kubelet/device-plugins/tessera-*.sock")
			return err == nil
		})
		return there
	})
}

func TestContainerdRestartedWhilePodsRun(t *testing.T) {
	pod := single("through-containerd", 1, "--hold", "600").create(t)
	waitPhase(t, pod, "Running")
	if err := shared.Restart(ctx, "containerd", 1); err != nil {
		t.Fatal(err)
	}
	after := single("after-containerd", 1).create(t)
	waitPhase(t, after, "Succeeded")
	if got := phase(t, pod); got != "Running" {
		t.Errorf("the pod is %s", got)
	}
}

func TestAPIServerDownDoesNotStopAGrant(t *testing.T) {
	// The pod is bound while the API server lives; its container starts again and again without it.
	pod := podSpec{Name: "restarting", Containers: []container{{Name: "main", Image: "probe", GPUs: 1, Args: []string{"--fail"}}}}
	text := fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q},"spec":{"terminationGracePeriodSeconds":0,`+
		`"containers":[{"name":"main","image":"tessera.dev/tests/probe:dev","imagePullPolicy":"Never","args":["--fail","--hold=1s"],`+
		`"resources":{"limits":{"nvidia.com/gpu":1}}}]}}`, pod.Name)
	if err := shared.Apply(ctx, text); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { deletePods(t, pod.Name) })
	eventually(t, podTimeout, "the first start", func() bool {
		out, _ := shared.Kubectl(ctx, "logs", pod.Name)
		return strings.Contains(out, "/dev/nvidia")
	})
	if err := shared.Stop(ctx, "kube-apiserver", 0); err != nil {
		t.Fatal(err)
	}
	time.Sleep(15 * time.Second) // the kubelet's back-off before the next start is 10 s
	if err := shared.Start(ctx, "kube-apiserver", 0); err != nil {
		t.Fatal(err)
	}
	eventually(t, podTimeout, "a start without the API server", func() bool {
		out, _ := shared.Kubectl(ctx, "get", "pod", pod.Name, "-o", "jsonpath={.status.containerStatuses[0].restartCount}")
		return out != "" && out != "0"
	})
	out := logs(t, pod.Name)
	if !strings.Contains(out, "/dev/nvidia") {
		t.Errorf("the container that started without the API server has no GPU: %s", out)
	}
}
