// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"tessera.dev/tests/e2e/bed"
)

// offerShares sets or removes the agent's variable SHARED_RESOURCES. With the value "none", the agent leaves
// shares of GPUs to another plugin.
func offerShares(t *testing.T, which string) {
	t.Helper()
	bed.Kubectl(t, "-n", "tessera-system", "set", "env", "daemonset/tessera-agent", which)
	bed.Kubectl(t, "-n", "tessera-system", "rollout", "status", "daemonset/tessera-agent", "--timeout=180s")
}

// startOldPlugin runs a device plugin like gpushare's on the node until the test ends.
func startOldPlugin(t *testing.T, args ...string) (stop func()) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "oldplugin")
	build := exec.Command("go", "build", "-o", program, ".")
	build.Dir = filepath.Join(bed.Root, "tests/e2e/oldplugin")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the plugin: %v: %s", err, text)
	}
	cmd, err := bed.Shared.NodeCommand(ctx, 1, append([]string{program}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	t.Cleanup(stop)
	return stop
}

// The container starts again every few seconds. Only the kubelet's checkpoint says which GPU gpushare's plugin
// gave to it, because the pod has no annotations.
func TestWhatGpusharesPluginGaveIsTakenOver(t *testing.T) {
	const shares, pod = "aliyun.com/gpu-mem", "of-gpushare"
	waitAllocatable(t, gpus)
	uuid := bed.UUIDs(t, 1)[2]
	offerShares(t, "SHARED_RESOURCES=none")
	t.Cleanup(func() { offerShares(t, "SHARED_RESOURCES-"); waitAllocatable(t, gpus) })
	stop := startOldPlugin(t, "--minor=2", "--units=80")
	bed.Eventually(t, bed.PodTimeout, "gpushare's plugin offers 80 GiB", func() bool {
		return bed.Allocatable(node, shares) == 80
	})
	bed.Pod{Name: pod, RestartPolicy: "Always", Containers: []bed.Container{{Name: "main", Image: "probe",
		Limits: map[string]int{shares: 8}, Args: []string{"--hold=8s"}}}}.Create(t)
	bed.WaitPhase(t, pod, "Running")
	bed.Eventually(t, bed.PodTimeout, "the container has no GPU, because Tessera gave it none", func() bool {
		text := bed.Logs(t, pod)
		return strings.Contains(text, `"NVIDIA_VISIBLE_DEVICES":"2"`) && !strings.Contains(text, "/dev/nvidia2")
	})

	offerShares(t, "SHARED_RESOURCES-")
	stop()
	bed.Eventually(t, bed.PodTimeout, "the pod's annotations name the container's GPU", func() bool {
		annotations := bed.ReadPod(t, pod).Metadata.Annotations
		return annotations["ALIYUN_COM_GPU_MEM_IDX"] == "2" && strings.Contains(annotations["tessera.dev/assignment"], uuid)
	})
	bed.Eventually(t, bed.PodTimeout, "the agent says what it took over", func() bool {
		text, _ := bed.TryKubectl("-n", "tessera-system", "logs", bed.AgentOf(node), "-c", "agent")
		return strings.Contains(text, "took over")
	})
	waitAllocatable(t, gpus-1)
	bed.Eventually(t, bed.PodTimeout, "the container starts again, with its GPU", func() bool {
		text := bed.Logs(t, pod)
		return strings.Contains(text, fmt.Sprintf("%q:%q", "NVIDIA_VISIBLE_DEVICES", uuid)) && strings.Contains(text, "/dev/nvidia2")
	})
	bed.Kubectl(t, "delete", "pod", pod)
	waitAllocatable(t, gpus)
}
