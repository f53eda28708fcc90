// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestNodeShowsItsGPUs(t *testing.T) {
	labels := kubectl(t, "get", "node", node, "-o",
		`jsonpath={.metadata.labels.nvidia\.com/gpu\.present} {.metadata.labels.nvidia\.com/gpu\.count} `+
			`{.metadata.labels.nvidia\.com/gpu\.product} {.metadata.labels.nvidia\.com/gpu\.memory}`)
	if want := "true 8 NVIDIA-A100-SXM4-80GB 81920"; labels != want {
		t.Errorf("labels %q, not %q", labels, want)
	}
	text := kubectl(t, "get", "node", node, "-o", `jsonpath={.metadata.annotations.tessera\.dev/devices}`)
	var devices struct{ GPUs []struct{ UUID string } }
	if err := json.Unmarshal([]byte(text), &devices); err != nil || len(devices.GPUs) != gpus {
		t.Errorf("annotation tessera.dev/devices (%v): %s", err, text)
	}
}

// The pods of the source articles, as deploy/samples has them for a newcomer.
func TestSamplePodsOfTheArticles(t *testing.T) {
	samples := filepath.Join(root, "deploy/samples")
	t.Cleanup(func() { kubectl(t, "delete", "--ignore-not-found", "--grace-period=0", "-f", samples) })
	kubectl(t, "apply", "-f", samples)
	for pod, count := range map[string]int{"test-gpu": 1, "gpu-pod": 1, "two-gpus": 2} {
		waitPhase(t, pod, "Succeeded")
		passed(t, pod, count)
	}
}

func TestAPairIsTheOneWithNVLink(t *testing.T) {
	// The profile links GPUs 2k and 2k+1. With one GPU of a pair taken, the next pair is whole again.
	order := strings.Split(strings.TrimSpace(simgpu(t, "show", "--uuids")), "\n")
	single("one", 1, "--hold", "60").create(t)
	waitPhase(t, "one", "Running")
	for i := range 3 {
		pod := single(fmt.Sprintf("pair-%d", i), 2, "--hold", "60").create(t)
		waitPhase(t, pod, "Running")
		eventually(t, podTimeout, "the pod names its GPUs", func() bool { return len(uuids(logs(t, pod))) == 2 })
		given := uuids(logs(t, pod))
		a, b := slices.Index(order, given[0]), slices.Index(order, given[1])
		if a/2 != b/2 {
			t.Errorf("%s got GPUs %d and %d, which have no NVLink between them", pod, a, b)
		}
	}
}

func probeReport(t *testing.T, pod string) (report struct {
	Devices, Driver []string
	Environment     map[string]string
	LdCache         int64
}) {
	t.Helper()
	text := logs(t, pod)
	if err := json.Unmarshal([]byte(text), &report); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return report
}

func TestAPodWithoutARequestSeesNoGPU(t *testing.T) {
	all := map[string]string{"NVIDIA_VISIBLE_DEVICES": "all"}
	for name, c := range map[string]container{
		"env-in-spec":         {Name: "main", Image: "probe", Env: all},
		"env-in-image":        {Name: "main", Image: "probe-all"},
		"env-in-both":         {Name: "main", Image: "probe-all", Env: all},
		"index-in-spec":       {Name: "main", Image: "probe", Env: map[string]string{"NVIDIA_VISIBLE_DEVICES": "0,1"}},
		"volume-mounts-value": {Name: "main", Image: "probe", Env: map[string]string{"NVIDIA_VISIBLE_DEVICES": "/var/run/nvidia-container-devices"}},
	} {
		for _, class := range []string{"", "nvidia"} {
			t.Run(strings.TrimSuffix(name+"-"+class, "-"), func(t *testing.T) {
				pod := podSpec{Name: strings.TrimSuffix("denied-"+name+"-"+class, "-"), Containers: []container{c}, RuntimeClass: class}.create(t)
				waitPhase(t, pod, "Succeeded")
				report := probeReport(t, pod)
				if len(report.Devices) != 0 || len(report.Driver) != 0 {
					t.Errorf("it sees %v and %v", report.Devices, report.Driver)
				}
			})
		}
	}
}

func TestAGrantedContainerSeesItsOwnGPUAndNoOther(t *testing.T) {
	pod := podSpec{Name: "granted", Containers: []container{{Name: "main", Image: "probe", GPUs: 1}}}.create(t)
	waitPhase(t, pod, "Succeeded")
	report := probeReport(t, pod)
	var numbered int
	for _, device := range report.Devices {
		if strings.Trim(strings.TrimPrefix(device, "/dev/nvidia"), "0123456789") == "" {
			numbered++
		}
	}
	if numbered != 1 || !slices.Contains(report.Devices, "/dev/nvidiactl") {
		t.Errorf("devices: %v", report.Devices)
	}
	if len(uuids(report.Environment["NVIDIA_VISIBLE_DEVICES"])) != 1 {
		t.Errorf("NVIDIA_VISIBLE_DEVICES: %v", report.Environment)
	}
}

func TestTwoContainersOfOnePodGetDifferentGPUs(t *testing.T) {
	pod := podSpec{Name: "two-containers", Containers: []container{
		{Name: "a", GPUs: 1}, {Name: "b", GPUs: 2}}}.create(t)
	waitPhase(t, pod, "Succeeded")
	a, b := uuids(logs(t, pod, "-c", "a")), uuids(logs(t, pod, "-c", "b"))
	if len(a) != 1 || len(b) != 2 || slices.Contains(b, a[0]) {
		t.Errorf("a got %v, b got %v", a, b)
	}
}

func TestAnInitContainerHandsItsGPUOn(t *testing.T) {
	pod := podSpec{Name: "with-init", Init: []container{{Name: "prepare", GPUs: 1}},
		Containers: []container{{Name: "main", GPUs: 1}}}.create(t)
	waitPhase(t, pod, "Succeeded")
	first, second := uuids(logs(t, pod, "-c", "prepare")), uuids(logs(t, pod, "-c", "main"))
	if len(first) != 1 || !slices.Equal(first, second) {
		t.Errorf("init container got %v, container got %v", first, second)
	}
}

func TestAPodDeletedAndCreatedAgainAtOnceRuns(t *testing.T) {
	for range 5 {
		single("again", gpus, "--hold", "60").create(t)
		waitPhase(t, "again", "Running")
		kubectl(t, "delete", "pod", "again", "--grace-period=0", "--wait=true", "--timeout=60s")
	}
	single("again", gpus).create(t)
	waitPhase(t, "again", "Succeeded")
	passed(t, "again", gpus)
}

func TestMorePodsThanGPUsWaitAndNoneFails(t *testing.T) {
	const pods = gpus + 3
	var names []string
	for i := range pods {
		names = append(names, single(fmt.Sprintf("crowd-%d", i), 1, "--hold", "4").create(t))
	}
	var most int
	eventually(t, 3*podTimeout, "all pods end", func() bool {
		text := kubectl(t, append([]string{"get", "pods", "-o", `jsonpath={range .items[*]}{.status.phase}{"\n"}{end}`}, names...)...)
		if strings.Contains(text, "Failed") {
			t.Fatalf("a pod failed:\n%s", text)
		}
		most = max(most, strings.Count(text, "Running"))
		return strings.Count(text, "Succeeded") == pods
	})
	if most > gpus {
		t.Errorf("%d pods ran at once on %d GPUs", most, gpus)
	}
	for _, name := range names {
		passed(t, name, 1)
	}
}

func TestAReadOnlyRootFileSystemWorks(t *testing.T) {
	p := single("read-only", 1)
	p.ReadOnlyRootFS = true
	p.create(t)
	waitPhase(t, "read-only", "Succeeded")
	passed(t, "read-only", 1)
}

func TestNothingIsLeftInTheLayerOfTheImage(t *testing.T) {
	single("layer", 1, "--hold", "60").create(t)
	waitPhase(t, "layer", "Running")
	eventually(t, podTimeout, "it holds its GPU", func() bool { return len(uuids(logs(t, "layer"))) == 1 })
	id := strings.TrimPrefix(kubectl(t, "get", "pod", "layer", "-o",
		"jsonpath={.status.containerStatuses[0].containerID}"), "containerd://")
	// The writable layer of the container's overlay, as the node's mount table names it.
	upper := onNode(t, "/bin/sh", "-c", `sed -n 's#.*/`+id+`/rootfs .*upperdir=\([^,]*\),.*#\1#p' /proc/self/mountinfo`)
	if strings.TrimSpace(upper) == "" {
		t.Fatalf("no overlay of container %s", id)
	}
	// The engine's own mount points (/dev, /proc, /etc/hosts …) come with every container.
	found := strings.Fields(onNode(t, "find", strings.TrimSpace(upper), "-mindepth", "1", "-printf", "/%P\n"))
	for _, path := range found {
		if strings.Contains(path, "nvidia") || strings.Contains(path, "tessera") || strings.Contains(path, "cuda") || strings.Contains(path, "ld.so") {
			t.Errorf("left in the layer: %s", path)
		}
	}
}

func TestExecFindsNvidiaSmi(t *testing.T) {
	single("smi", 1, "--hold", "60").create(t)
	waitPhase(t, "smi", "Running")
	eventually(t, podTimeout, "it holds its GPU", func() bool { return len(uuids(logs(t, "smi"))) == 1 })
	text := kubectl(t, "exec", "smi", "--", "nvidia-smi", "-L")
	if got := uuids(text); !slices.Equal(got, uuids(logs(t, "smi"))) {
		t.Errorf("nvidia-smi -L shows %v: %s", got, text)
	}
}

func TestPodsStartQuickly(t *testing.T) {
	// Not a limit on seconds: it fails when a start waits for a time-out somewhere.
	single("quick", 1).create(t)
	began := time.Now()
	waitPhase(t, "quick", "Succeeded")
	if took := time.Since(began); took > 15*time.Second {
		t.Errorf("a pod with a GPU took %s", took)
	}
}
