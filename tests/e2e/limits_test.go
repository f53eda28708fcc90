// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"tessera.dev/tests/e2e/bed"
)

const mib = 1 << 20

// limitedPods are the names of three pods. Two always have work for a whole GPU, and have 30 and 70 hundredths of
// it. The third has a limit of 2.5 GiB of GPU memory and holds 2 GiB.
type limitedPods struct{ small, large, holder string }

func createLimitedPods(t *testing.T) limitedPods {
	busy := func(name string, cores int) string {
		return bed.Pod{Name: name, Containers: []bed.Container{{
			Name: "main", Args: []string{"--busy", "3600"},
			Env:    map[string]string{"SIMGPU_KERNEL_NS": "*=2000000"},
			Limits: map[string]int{"tencent.com/vcuda-core": cores, "tencent.com/vcuda-memory": 8},
		}}}.Create(t)
	}
	holder := bed.Pod{Name: "limits-memory", Containers: []bed.Container{{
		Name: "main", Args: []string{"--bytes", fmt.Sprint(2048 * mib), "--hold", "3600"},
		Limits: map[string]int{"tencent.com/vcuda-core": 30, "tencent.com/vcuda-memory": 10},
	}}}.Create(t)
	pods := limitedPods{busy("limits-30", 30), busy("limits-70", 70), holder}
	for _, pod := range []string{pods.small, pods.large, pods.holder} {
		bed.WaitPhase(t, pod, "Running")
	}
	bed.Eventually(t, bed.PodTimeout, "the pod holds its memory", func() bool {
		return strings.Contains(bed.Logs(t, pods.holder), "Test PASSED")
	})
	return pods
}

// allocate starts a second process in the container of a pod, which allocates GPU memory, and returns its error.
func allocate(t *testing.T, pod string, bytes int) error {
	t.Helper()
	_, err := bed.TryKubectl("exec", pod, "--", "vectoradd", "--bytes", fmt.Sprint(bytes))
	return err
}

func (pods limitedPods) checkLimits(t *testing.T, when string) {
	t.Helper()
	waitComputeUse(t, when, map[string]int{pods.small: 30, pods.large: 70})
	err := allocate(t, pods.holder, 1024*mib)
	if err == nil || !strings.Contains(err.Error(), "CUDA_ERROR_OUT_OF_MEMORY") {
		t.Errorf("%s a process got memory beyond the limit of its container: %v", when, err)
	}
	if err := allocate(t, pods.holder, 400*mib); err != nil {
		t.Errorf("%s a process got no memory within the limit: %v", when, err)
	}
	bed.Untouched(t, when, pods.small, pods.large, pods.holder)
}

// followLimits lowers limits, checks that they hold, and removes them again.
func (pods limitedPods) followLimits(t *testing.T, when string) {
	t.Helper()
	bed.Tessera(t, "limit", pods.large, "--compute", "20")
	waitComputeUse(t, when+" with a lower limit", map[string]int{pods.small: 30, pods.large: 20})
	bed.Tessera(t, "limit", pods.large, "--compute", "none")
	bed.Tessera(t, "limit", pods.holder, "--memory", "2304Mi")
	bed.Eventually(t, bed.PodTimeout, when+" a lower limit of memory holds", func() bool {
		err := allocate(t, pods.holder, 400*mib)
		return err != nil && strings.Contains(err.Error(), "CUDA_ERROR_OUT_OF_MEMORY")
	})
	bed.Tessera(t, "limit", pods.holder, "--memory", "none")
	bed.Eventually(t, bed.PodTimeout, when+" the grant holds again", func() bool {
		return allocate(t, pods.holder, 400*mib) == nil
	})
}

func TestLimitsHoldThroughAKilledAgentAndAnUpgrade(t *testing.T) {
	pods := createLimitedPods(t)
	pods.checkLimits(t, "at first")

	killAgent(t)
	pods.checkLimits(t, "after the agent was killed")
	pods.followLimits(t, "after the agent was killed")

	old := agentPID(t)
	t.Cleanup(func() { bed.UpgradeChart(t) })
	bed.UpgradeChart(t, "--set", "agent.extraArgs={--log-format=json}")
	if now := agentPID(t); now == old {
		t.Error("the upgrade started no other agent")
	}
	pods.checkLimits(t, "after an upgrade")
	if text := bed.Tessera(t, "explain", pods.small); !strings.Contains(text, "main on GPU ") || !strings.Contains(text, " in the last minute: ") {
		t.Errorf("tessera explain does not say how well the share held: %s", text)
	}
	pods.followLimits(t, "after an upgrade")
}

// Runs the pods of the source articles that share a GPU, from deploy/samples.
func TestTheSharedSamplesAreLimited(t *testing.T) {
	var files []string
	for _, name := range []string{"binpack-1", "nginx", "over-limit"} {
		files = append(files, "-f", filepath.Join(bed.Root, "deploy/samples", name+".yaml"))
	}
	t.Cleanup(func() {
		bed.Kubectl(t, append([]string{"delete", "--ignore-not-found", "--grace-period=0"}, files...)...)
	})
	bed.Kubectl(t, append([]string{"apply"}, files...)...)
	bed.Kubectl(t, "rollout", "status", "deployment/binpack-1", "--timeout=180s")
	bed.WaitPhase(t, "nginx", "Running")
	for what, want := range map[string]string{"deployment/binpack-1": "8192 MiB", "pod/nginx": "5120 MiB"} {
		got := bed.Kubectl(t, "exec", what, "--", "nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader")
		if strings.TrimSpace(got) != want {
			t.Errorf("nvidia-smi in %s shows %q, not %s", what, got, want)
		}
	}
	bed.Eventually(t, bed.PodTimeout, "tessera top shows the limits", func() bool {
		return limitOf(t, "binpack-1-") == 8192*mib && limitOf(t, "nginx") == 5120*mib
	})
	bed.WaitPhase(t, "over-limit", "Failed")
	log := bed.Logs(t, "over-limit")
	for _, want := range []string{"CUDA_ERROR_OUT_OF_MEMORY", "this container may use 2048 MiB of GPU-", "an allocation of 1024.0 MiB is refused"} {
		if !strings.Contains(log, want) {
			t.Errorf("the log of over-limit lacks %q: %s", want, log)
		}
	}
}

// limitOf returns the GPU memory that the pod whose name begins with the prefix may use, according to tessera top.
// It is 0 if the pod has no limit, or if an agent has just started and has not found all containers yet.
func limitOf(t *testing.T, prefix string) int64 {
	t.Helper()
	text, err := bed.TesseraCommand("top", "--output", "json").Output()
	if err != nil {
		return 0
	}
	var page struct {
		Items []struct {
			Pod     string
			Limited bool
			Memory  struct{ Limit int64 }
		}
	}
	if json.Unmarshal(text, &page) != nil {
		t.Fatalf("tessera top: %s", text)
	}
	for _, container := range page.Items {
		if strings.HasPrefix(container.Pod, prefix) && container.Limited {
			return container.Memory.Limit
		}
	}
	return 0
}
